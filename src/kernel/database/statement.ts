import type { RateLimitTable } from '../../../schema/index.ts'
import { onceFor } from '../base/once.ts'
import { sha256 } from './digest.ts'

/** A value that every driver can send. */
export type Value = string | number | boolean | null

export type Values = Readonly<Record<string, Value>>

/** A statement with a fixed text and parameters. */
export interface Statement {
  readonly sql: string
  /** The names of its parameters. The first is `$1`. */
  readonly names: readonly string[]
  /** The text under several names, by plan. Connections keep each name with a plan of its own. */
  readonly named: Map<string, NamedText>
}

/** A text and the name under which a connection may keep it. */
export interface NamedText {
  readonly sql: string
  readonly name: string
}

/**
 * The text and the name of a statement for one of its plans. The name is a hash of the text, so that every
 * process uses the same name for the same text.
 */
export async function nameText({ sql, named }: Statement, plan: string): Promise<NamedText> {
  const text = `/* ${plan} */ ${sql}`
  const made = { sql: text, name: `ratelimit_${(await sha256(text)).slice(0, 32)}` }
  named.set(plan, made)
  return made
}

export type Statements = Map<string, Statement>

/** The statements of a table. They live as long as it does: building one costs more than running it. */
export const statementsOf: (table: RateLimitTable) => Statements = /* @__PURE__ */ onceFor(() => new Map())

/** The statement of that name. It is built on first use. */
export function kept(statements: Statements, name: string, build: () => Statement): Statement {
  const known = statements.get(name)
  if (known) return known
  const built = build()
  statements.set(name, built)
  return built
}
