import type { RateLimitTable } from '../../schema/index.ts'
import type { Statement } from '../database/statement.ts'

/** The rendered statements of a table by their names. */
export type Statements = Map<string, Statement>

type Rendered = WeakMap<RateLimitTable, Statements>

const [plain, distributed]: readonly [Rendered, Rendered] = [new WeakMap(), new WeakMap()]

/**
 * The statements of a table. They live as long as the table, because building one costs more than running it.
 * A distributed table has others.
 */
export function statementsOf(table: RateLimitTable, isDistributed = false): Statements {
  const rendered = isDistributed ? distributed : plain
  const known = rendered.get(table) ?? new Map()
  rendered.set(table, known)
  return known
}

/** The statement of that name. It is built on first use. */
export function kept(statements: Statements, name: string, build: () => Statement): Statement {
  const known = statements.get(name) ?? build()
  statements.set(name, known)
  return known
}
