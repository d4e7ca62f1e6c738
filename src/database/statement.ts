import { sha256 } from './digest.ts'

/** A value that every driver can send. */
export type Value = string | number | boolean | null

/** Values by the names of parameters. */
export type Values = Readonly<Record<string, Value>>

/** A statement whose text is fixed, waiting for its values. */
export interface Statement {
  readonly sql: string
  /** The names of its parameters: the first is `$1`. */
  readonly names: readonly string[]
  /** The same text under other names, for connections to keep: each is planned by itself. */
  readonly named: Map<string, NamedText>
}

/** A text, and the name under which a connection may keep it. */
export interface NamedText {
  readonly sql: string
  readonly name: string
}

export function statement(sql: string, names: readonly string[]): Statement {
  return { sql, names, named: new Map() }
}

/**
 * The text and the name of a statement for one of its plans. The name is the hash of the text, the same in
 * every process, so that no connection meets a name with another text.
 */
export async function nameText({ sql, named }: Statement, plan: string): Promise<NamedText> {
  const text = `/* ${plan} */ ${sql}`
  const made = { sql: text, name: `ratelimit_${(await sha256(text)).slice(0, 32)}` }
  named.set(plan, made)
  return made
}
