import { runOnce } from '../database/run.ts'
import { valuesOf } from '../database/statement.ts'
import { sweep as sweepStatement } from '../statements/statements.ts'
import { SWEEP_ROWS } from '../statements/sweep.ts'
import type { Namespace, Target } from './call.ts'

/** How long no sweep runs after one that left nothing. */
const REST_MS = 50

/** Deletes expired rows of a prefix beside its checks: one sweep at a time, which nobody waits for. */
export class Sweeper {
  readonly #target: Target
  readonly #namespace: Namespace
  #sweeping = false
  #restsUntil = Number.NEGATIVE_INFINITY

  constructor(target: Target, namespace: Namespace) {
    this.#target = target
    this.#namespace = namespace
  }

  /**
   * Sweeps once, unless a sweep is under way or has just left nothing. `clock` is the injected time of the
   * call that asks.
   */
  sweepBeside(clock: number | null): void {
    if (this.#sweeping || performance.now() < this.#restsUntil) return
    this.#sweeping = true
    this.#sweep(clock)
      .then((deleted) => {
        if (deleted < SWEEP_ROWS) this.#restsUntil = performance.now() + REST_MS
      })
      // Nobody waits for it; the next one tries again.
      .catch(() => {})
      .finally(() => {
        this.#sweeping = false
      })
  }

  /** Deletes all expired rows, some at a time; those that others have locked stay for the next time. */
  async sweepAll(): Promise<number> {
    const clock = this.#namespace.clock()
    let deleted = 0
    for (;;) {
      const rows = await this.#sweep(clock)
      deleted += rows
      if (rows < SWEEP_ROWS) return deleted
    }
  }

  async #sweep(clock: number | null): Promise<number> {
    const statement = sweepStatement(this.#target.table)
    const values = valuesOf(statement, { prefix: this.#namespace.prefix, clock }, {})
    const [row] = await runOnce(this.#target.db, statement, values)
    return Number(row?.['deleted'])
  }
}
