import type { RateLimitTable } from '../../schema/index.ts'
import { groupBy } from '../kernel/base/arrays.ts'
import type { Database } from '../kernel/database/database.ts'
import { runOnce } from '../kernel/database/run.ts'
import { kept, statementsOf } from '../kernel/database/statement.ts'
import type { Numbers, StateColumn, StoredLimiter } from '../kernel/limits/algorithm.ts'
import { paramsAt } from '../kernel/limits/limiter.ts'
import { numberArray, textArray } from '../kernel/sql/calls.ts'
import { SQL_NAMES } from '../kernel/sql/columns.ts'
import { beginStatement, begunNumbers } from './sql/begin.ts'

/** A key without a row, and the state that it begins with. */
export interface Begun {
  readonly key: string
  readonly limiter: StoredLimiter
  /** When it begins, in Unix milliseconds. */
  readonly time: number
  readonly state: Numbers<StateColumn>
}

/** Inserts the rows, unless they exist. */
export async function begin(
  { tx, table, prefix }: { tx: Database; table: RateLimitTable; prefix: string },
  begun: readonly Begun[],
): Promise<void> {
  for (const alike of groupBy(begun, ({ limiter }) => limiter.algorithm.name)) {
    const { limiter: first } = alike[0] as Begun
    const statement = kept(statementsOf(table), `begin ${first.algorithm.name}`, () =>
      beginStatement(table, first),
    )
    const rows = alike.map(({ limiter, time, state }) => {
      const columns = limiter.algorithm.columns.map((column) => [SQL_NAMES[column], state[column]])
      return { ...paramsAt(limiter, time), ...Object.fromEntries(columns) }
    })
    const values = begunNumbers(first).map((each) => [
      each,
      numberArray(rows.map((row) => row[each] ?? null)),
    ])
    const key = textArray(alike.map((each) => each.key))
    await runOnce({ db: tx }, statement, { ...Object.fromEntries(values), prefix, key })
  }
}
