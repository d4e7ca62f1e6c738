import type { Database } from '../database/database.ts'
import { mustHave, onlyRow } from '../database/rows.ts'
import { runOnce } from '../database/run.ts'
import { timed } from '../diagnostics.ts'
import { kept } from '../statements/statements.ts'
import { MAX_SWEPT, sweepStatement } from '../statements/sweep.ts'
import type { Namespace, Table } from './call.ts'

/** How long no sweep runs after one that left nothing. */
const REST_MS = 50

/** How long a sweep may take. After that it counts as cut off by the end of its request. */
const LOST_MS = 10_000

/** Deletes expired rows of a prefix beside its checks: one sweep at a time, which nobody waits for. */
export class Sweeper {
  readonly #db: Database
  readonly #table: Table
  readonly #namespace: Namespace
  readonly #keepEnded: boolean
  #restsUntil = Number.NEGATIVE_INFINITY

  /** @param keepEnded Whether windows that have ended stay. */
  constructor(db: Database, table: Table, namespace: Namespace, keepEnded: boolean) {
    this.#db = db
    this.#table = table
    this.#namespace = namespace
    this.#keepEnded = keepEnded
  }

  /**
   * Sweeps once, unless a sweep is under way or has just left nothing. `clock` is the injected time of the
   * call that asks.
   *
   * @returns When the sweep has ended. It never rejects: the next one tries again.
   */
  sweepBeside(clock: number | null): Promise<void> | undefined {
    if (performance.now() < this.#restsUntil) return undefined
    this.#restsUntil = performance.now() + LOST_MS
    const endWith = (deleted: number) => {
      this.#restsUntil = performance.now() + (deleted < MAX_SWEPT ? REST_MS : 0)
    }
    return this.sweep(clock).then(endWith, () => endWith(MAX_SWEPT))
  }

  /** Deletes some expired rows; those that others have locked stay for the next time. */
  async sweep(clock: number | null): Promise<number> {
    const { table, statements } = this.#table
    const statement = kept(statements, `sweep ${this.#keepEnded}`, () =>
      sweepStatement(table, this.#keepEnded),
    )
    const { prefix } = this.#namespace
    const rows = await timed({ prefix, statement: 'sweep', keys: undefined }, () =>
      runOnce(this.#db, statement, { prefix, clock }),
    )
    return Number(mustHave(onlyRow(rows)?.['deleted']))
  }
}
