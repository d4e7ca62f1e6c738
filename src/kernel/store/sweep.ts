import { mustHave, onlyRow } from '../database/rows.ts'
import { runOnce } from '../database/run.ts'
import { kept } from '../database/statement.ts'
import { timed } from '../diagnostics.ts'
import { MAX_SWEPT, sweepStatement } from '../sql/remove.ts'
import type { Store, Table, Target } from './store.ts'

/** The pause after a sweep that left no expired rows. */
const REST_MS = 50

/** After this time a sweep counts as lost: the end of its request may have cut it off. */
const LOST_MS = 10_000

/** Deletes expired rows of a prefix in the background, one sweep at a time. */
export class Sweeper {
  readonly #rows: Target
  readonly #keepEnded: boolean
  #restsUntil = Number.NEGATIVE_INFINITY

  constructor(rows: Target, keepEnded: boolean) {
    this.#rows = rows
    this.#keepEnded = keepEnded
  }

  /**
   * Sweeps once, unless a sweep is under way or has just left nothing. `clock` is the injected time of the call
   * that asks for the sweep.
   *
   * @returns Resolves when the sweep has ended, and never rejects: the next sweep tries again.
   */
  sweepInBackground(clock: number | null): Promise<void> | undefined {
    if (performance.now() < this.#restsUntil) return undefined
    this.#restsUntil = performance.now() + LOST_MS
    const endWith = (deleted: number) => {
      this.#restsUntil = performance.now() + (deleted < MAX_SWEPT ? REST_MS : 0)
    }
    return this.sweep(clock).then(endWith, () => endWith(MAX_SWEPT))
  }

  /** Deletes some expired rows. Rows that others have locked stay for the next sweep. */
  async sweep(clock: number | null): Promise<number> {
    const { connection, table, namespace } = this.#rows
    const { prefix } = namespace
    return timed({ prefix, statement: 'sweep', keys: undefined }, () =>
      table.store.sweep(connection.db, prefix, clock, this.#keepEnded),
    )
  }
}

export async function sweepTable(
  { table, statements }: Pick<Table, 'table' | 'statements'>,
  ...[db, prefix, clock, keepEnded]: Parameters<Store['sweep']>
): Promise<number> {
  const statement = kept(statements, `sweep ${keepEnded}`, () => sweepStatement(table, keepEnded))
  const rows = await runOnce({ db }, statement, { prefix, clock })
  return Number(mustHave(onlyRow(rows)?.['deleted']))
}
