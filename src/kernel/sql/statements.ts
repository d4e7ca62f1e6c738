import type { RateLimitTable } from '../../../schema/index.ts'
import { onceFor } from '../base/once-for.ts'
import type { Statement } from '../database/statement.ts'

/** The rendered statements of a table by their names. */
export type Statements = Map<string, Statement>

/** The statements of a table. They live as long as it does: building one costs more than running it. */
export const statementsOf: (table: RateLimitTable) => Statements = /* @__PURE__ */ onceFor(() => new Map())

/** The statement of that name. It is built on first use. */
export function kept(statements: Statements, name: string, build: () => Statement): Statement {
  const known = statements.get(name) ?? build()
  statements.set(name, known)
  return known
}
