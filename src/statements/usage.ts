import { eq, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Rules } from '../algorithms/algorithm.ts'
import type { Statement } from '../database/statement.ts'
import { builder, name, Parameters } from './builder.ts'
import { rowColumns } from './columns.ts'
import { answerColumns } from './decided.ts'
import { advanced, CLOCK_MS, type Level, level, paramsOf, stateOf } from './levels.ts'

/** The statement that finds the `top` keys of a prefix that have used most. */
export function usageStatement(table: RateLimitTable, rules: Rules, injectedClock: boolean): Statement {
  const parameters = new Parameters()
  const columns = { key: sql`${table.key}`.as('key'), ...rowColumns(table, rules.algorithm) }
  const stored = builder
    .select(columns)
    .from(table)
    .where(eq(table.prefix, parameters.text('prefix')))
  const rows: Level = { source: sql`(${stored.getSQL()}) as stored`, columns: Object.keys(columns) }
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const states = advanced(rules, rows, clock, parameters, { keepHolds: true })
  const params = paramsOf(rules.algorithm, parameters)
  const { source } = level('used', states, { used: rules.algorithm.sql.used(stateOf(), name('now'), params) })
  const answer = ['key', ...answerColumns(rules.algorithm).filter((column) => column !== 'granted')]
  return parameters.render(
    sql`select ${sql.join(
      answer.map((column) => name(column)),
      sql`, `,
    )} from ${source}
      where holds and used > ${sql.raw(String(rules.algorithm.tolerance))}
      order by used desc, key asc limit ${parameters.number('top')}::bigint`,
  )
}
