import type { RateLimitTable } from '../../schema/index.ts'
import type { Statement } from '../database/statement.ts'

/** The statements of a table that have been rendered, by their names. */
export type Statements = Map<string, Statement>

const rendered = new WeakMap<RateLimitTable, Statements>()

/** Each statement is kept as long as the table: building one costs more than Postgres takes to run it. */
export function statementsOf(table: RateLimitTable): Statements {
  const known = rendered.get(table) ?? new Map()
  rendered.set(table, known)
  return known
}

/** The statement of that name, which is built when it is first needed. */
export function kept(statements: Statements, name: string, build: () => Statement): Statement {
  const known = statements.get(name) ?? build()
  statements.set(name, known)
  return known
}
