import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../database/statement.ts'
import type { AnyAlgorithm } from '../limits/algorithm.ts'
import { builder, Parameters } from './builder.ts'
import { forEach, MAX_TIME, STATE_COLUMNS, toColumn } from './columns.ts'
import { CLOCK_MS } from './levels.ts'

/**
 * The statement that resets a limit that does not start full. It inserts the row with the whole limit, or
 * replaces the state of the row. The parameters have the names of the state's columns.
 *
 * If another transaction holds the row, it waits, and Postgres works out the new state afterwards. So the time
 * in it is later than the wait.
 */
export function fillStatement(
  table: RateLimitTable,
  { columns, datedBy }: AnyAlgorithm,
  injectedClock: boolean,
): Statement {
  const parameters = new Parameters()
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const state = {
    ...forEach(STATE_COLUMNS, (column) => {
      if (!columns.includes(column)) return toColumn(column, undefined)
      return toColumn(column, column === datedBy ? clock : parameters.number(column))
    }),
    // Without its row, the key would have less.
    expiresAt: toColumn('expiresAt', MAX_TIME),
  }
  const filled = builder
    .insert(table)
    .values({ prefix: parameters.text('prefix'), key: parameters.text('key'), ...state })
    .onConflictDoUpdate({ target: [table.prefix, table.key], set: state })
    .getSQL()
  return parameters.render(filled)
}
