import { sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Rules } from '../algorithms/algorithm.ts'
import type { Statement } from '../database/statement.ts'
import { builder, chain, link, name, Parameters } from './builder.ts'
import { placed } from './calls.ts'
import { forEach, onGrid, SQL_NAMES, STATE_COLUMNS, toColumn } from './columns.ts'
import { paramsOf, stateOf } from './levels.ts'
import { lookParams } from './usage.ts'

const BEGUN = 'ratelimit_begun'

/** The numbers that are sent for each row: those of its limiter, and its state. */
export function begunNumbers(rules: Rules): readonly string[] {
  return [...lookParams(rules), 'expiryGridMs', ...rules.algorithm.columns.map((column) => SQL_NAMES[column])]
}

/** The statement that inserts rows with these states, unless they exist. It returns the inserted keys. */
export function beginStatement(table: RateLimitTable, rules: Rules): Statement {
  const { algorithm } = rules
  const numbers = begunNumbers(rules)
  const parameters = new Parameters(numbers)
  const state = stateOf()
  const arrays = [parameters.array('key', 'text'), ...numbers.map((each) => parameters.array(each, 'float8'))]
  const columns = forEach(STATE_COLUMNS, (column) =>
    toColumn(column, algorithm.columns.includes(column) ? state[column] : undefined),
  )
  const expiresAt = onGrid(algorithm.sql.expiresAt(state, paramsOf(algorithm, parameters)), parameters)
  const inserted = builder
    .insert(table)
    .select(
      sql`select ${parameters.text('prefix')}, ${name('key')}, ${columns.count}, ${columns.prevCount},
        ${columns.windowStart}, ${columns.tokens}, ${columns.lastRefill}, ${toColumn('expiresAt', expiresAt)}
        from ${placed(['key', ...numbers], arrays)}`,
    )
    .onConflictDoNothing({ target: [table.prefix, table.key] })
    .returning({ key: table.key })
  return parameters.render(chain([link(BEGUN, inserted)], sql`select * from ${name(BEGUN)}`))
}
