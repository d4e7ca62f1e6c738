import { sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import type { AnyAlgorithm } from '../../kernel/limits/algorithm.ts'
import { builder, chain, isTheRow, link, name, Parameters } from '../../kernel/sql/builder.ts'
import {
  exact,
  forEach,
  fromColumn,
  isOfKind,
  rowColumns,
  SQL_NAMES,
  STATE_COLUMNS,
  storedState,
} from '../../kernel/sql/columns.ts'
import { paramsOf, stateOf } from '../../kernel/sql/levels.ts'
import { lockedRow } from '../../kernel/sql/rows.ts'

const [FOUND, CORRECTED] = ['ratelimit_found', 'ratelimit_corrected']

/**
 * The statement that settles an estimate in a period that has ended, if the key's row still counts that period.
 * It returns the row as it was before, or nothing.
 */
export function correctStatement(table: RateLimitTable, algorithm: AnyAlgorithm): Statement {
  const parameters = new Parameters()
  const start = fromColumn('windowStart', table.windowStart)
  const isPeriod = [
    isTheRow(table, parameters),
    isOfKind(algorithm, table),
    sql`${start} = ${parameters.number('start')}`,
  ]
  const found = lockedRow(table, rowColumns(table, algorithm), isPeriod, true)
  const stored = stateOf((column) => name(column, FOUND))
  const state = forEach(STATE_COLUMNS, (column) => fromColumn(column, stored[column]))
  const none = sql<number>`0::float8`
  const rate = parameters.number('rate')
  // Postgres refuses a parameter that the text does not use.
  const reserved = algorithm.settled ? parameters.number('reserved') : none
  const next = algorithm.sql.consume(
    state,
    state.windowStart,
    none,
    rate,
    paramsOf(algorithm, parameters),
    reserved,
  )
  const corrected = builder
    .update(table)
    .set(storedState(algorithm, next))
    .from(name(FOUND))
    .where(isTheRow(table, parameters))
    .returning({ key: table.key })
  const answer = algorithm.columns.map((column) => sql`${exact(state[column])} as ${name(SQL_NAMES[column])}`)
  return parameters.render(
    chain(
      [link(FOUND, found), link(CORRECTED, corrected)],
      sql`select ${sql.join(answer, sql`, `)} from ${name(FOUND)}`,
    ),
  )
}
