import { entityKind } from 'drizzle-orm'
import type { RatelimitError } from '../errors.ts'
import { type Database, isTransaction } from './database.ts'

/** What a Drizzle session has for statements with a name. Its second argument is another one in 1.0, where undefined means objects. */
export interface NamingSession {
  prepareQuery(
    query: { readonly sql: string; readonly params: unknown[] },
    fields: undefined,
    name: string,
  ): { execute(): PromiseLike<unknown> }
}

/**
 * Whether statements have names: the server then parses and plans them once a connection, not once a call.
 *
 * node-postgres alone makes something of a name. Without an option they are named outside transactions only, where a refusal can be
 * made good. https://www.postgresql.org/docs/current/sql-prepare.html
 */
export class Naming {
  readonly #wanted: boolean | undefined
  #refused = false

  constructor(wanted: boolean | undefined) {
    this.#wanted = wanted
  }

  /** The session to send a named statement by; none where it has to go without. */
  sessionFor(db: Database): NamingSession | undefined {
    const wanted = this.#wanted ?? !isTransaction(db)
    return wanted && !this.#refused ? nodePostgresSession(db) : undefined
  }

  /**
   * Whether a pooler that hands each transaction another connection has refused the name, which then none has any more. The
   * refusal comes before the statement is executed.
   */
  isRefusal({ sqlState }: RatelimitError): boolean {
    const refused = sqlState === DUPLICATE_NAME || sqlState === UNKNOWN_NAME
    this.#refused ||= refused
    return refused
  }
}

const DUPLICATE_NAME = '42P05'
const UNKNOWN_NAME = '26000'

function nodePostgresSession({ _: inner }: Database): NamingSession | undefined {
  return inner?.session && isNodePostgres(inner.session) ? inner.session : undefined
}

function isNodePostgres(session: object): session is NamingSession {
  return Reflect.get(session.constructor, entityKind) === 'NodePgSession'
}

/** A name for a statement, the same wherever its text is the same. */
export async function nameFor(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))
  const hex = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0'))
  return `ratelimit_${hex.join('').slice(0, 32)}`
}
