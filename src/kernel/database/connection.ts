import { type Database, isTransaction, kindsOf, wireSessionOf } from './database.ts'
import type { Sending } from './sending.ts'

/**
 * The argument with which Drizzle returns rows as the driver gives them: `undefined` in 0.45, where it is a
 * list of fields, and `'raw'` in 1.0.
 */
type RawMode = 'raw' | undefined

/** A Drizzle session that accepts names for statements. */
interface NamingSession {
  prepareQuery(
    query: { readonly sql: string; readonly params: unknown[] },
    mode: RawMode,
    name: string,
  ): { execute(): PromiseLike<unknown> }
}

/**
 * Whether connections keep prepared statements, so that the server parses and plans them once.
 *
 * By default they do so only outside transactions, where a refused statement can be sent again. Poolers that
 * give each transaction another connection refuse prepared statements.
 * https://www.postgresql.org/docs/current/sql-prepare.html
 */
export interface Preparing {
  /** The option `preparedStatements`. */
  readonly wish: boolean | undefined
  /** A pooler has refused a statement. Since then, no connection keeps any. */
  refused: boolean
  /** How often a kept statement was outdated, because a column has another type. Then all get new names. */
  renewed: number
}

/** A database or transaction, and how to send statements there. */
export interface Connection {
  readonly db: Database
  readonly isTransaction: boolean
  readonly keeping: Preparing
  /** The session that sends kept statements. Undefined if none are kept. */
  readonly session: NamingSession | undefined
  readonly rawMode: RawMode
  /** What its statements tell about themselves. Undefined if nobody asks. */
  readonly sending?: Sending | undefined
}

export function connectionTo(db: Database, keeping: Preparing): Connection {
  const inTransaction = isTransaction(db)
  const session = (keeping.wish ?? !inTransaction) ? namingSession(db) : undefined
  const rawMode = session && kindsOf(session).includes('PgAsyncSession') ? 'raw' : undefined
  return { db, isTransaction: inTransaction, keeping, session, rawMode }
}

/** The same place, for statements that tell about themselves. */
export function telling(
  { db, isTransaction, keeping, session, rawMode }: Connection,
  sending: Sending,
): Connection {
  // This runs for each statement. A spread with one change takes V8 a microsecond.
  return { db, isTransaction, keeping, session, rawMode, sending }
}

/** The session, if it passes the name of a statement on to its driver. */
function namingSession(db: Database): NamingSession | undefined {
  const session = wireSessionOf(db)
  return session && 'prepareQuery' in session ? (session as NamingSession) : undefined
}
