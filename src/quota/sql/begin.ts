import { sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import type { Rules } from '../../kernel/limits/algorithm.ts'
import { chain, link, name, Parameters } from '../../kernel/sql/builder.ts'
import { placed } from '../../kernel/sql/calls.ts'
import { onGrid, SQL_NAMES, storedState, toColumn } from '../../kernel/sql/columns.ts'
import { paramsOf, stateOf } from '../../kernel/sql/levels.ts'
import { insertRow, newRows } from '../../kernel/sql/rows.ts'

const BEGUN_ROWS = 'ratelimit_begun'

/** The numbers that are sent for each row: those of its limiter, and its state. */
export function begunNumbers(rules: Rules): readonly string[] {
  const { params, columns } = rules.algorithm
  return ['limit', 'periodMs', ...params, 'expiryGridMs', ...columns.map((column) => SQL_NAMES[column])]
}

/** The statement that inserts rows with these states, unless they exist. It returns the inserted keys. */
export function beginStatement(table: RateLimitTable, rules: Rules): Statement {
  const { algorithm } = rules
  const numbers = begunNumbers(rules)
  const parameters = new Parameters(numbers)
  const state = stateOf()
  const arrays = [parameters.array('key', 'text'), ...numbers.map((each) => parameters.array(each, 'float8'))]
  const expires = onGrid(algorithm.sql.expiresAt(state, paramsOf(algorithm, parameters)), parameters)
  const next = { ...storedState(algorithm, state), expiresAt: toColumn('expiresAt', expires) }
  const from = placed(['key', ...numbers], arrays)
  const inserted = insertRow(table, newRows(parameters.text('prefix'), name('key'), next, from))
  return parameters.render(chain([link(BEGUN_ROWS, inserted)], sql`select * from ${name(BEGUN_ROWS)}`))
}
