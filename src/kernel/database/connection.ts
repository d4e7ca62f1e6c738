import { RatelimitError } from '../errors.ts'
import { type Database, isTransaction, kindsOf, wireSessionOf } from './database.ts'

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
 * By default they do so only outside a caller's transactions, where what was refused can be sent again. Poolers
 * that give each transaction another connection refuse prepared statements.
 * https://www.postgresql.org/docs/current/sql-prepare.html
 */
export interface Preparing {
  readonly wish: boolean | undefined
  /** A pooler has refused a statement. Since then, no connection keeps any. */
  refused: boolean
  /** How often a kept statement was outdated, because a column has another type. Then all get new names. */
  renewed: number
}

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

/** Transactions of the package's own. If a statement of one is refused, all of it can be repeated. */
export const ours: WeakSet<Database> = /* @__PURE__ */ new WeakSet()

export function connectionTo(db: Database, keeping: Preparing): Connection {
  const inTransaction = isTransaction(db)
  const session = (keeping.wish ?? (!inTransaction || ours.has(db))) ? namingSession(db) : undefined
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

export interface Sending {
  /** Whether the last statement may have reached the database. */
  isSent: boolean
  /** Whether the caller was told that nothing was sent. So nothing is sent any more. */
  isWithdrawn: boolean
}

export function newSending(): Sending {
  return { isSent: false, isWithdrawn: false }
}

/** Withdraws work, unless its statement may have been sent. Returns whether it is withdrawn. */
export function withdraw(sending: Sending | undefined): boolean {
  if (!sending || sending.isSent) return false
  sending.isWithdrawn = true
  return true
}

/** The error of work that was withdrawn. Its caller has an error already. */
export function withdrawn(): RatelimitError {
  return new RatelimitError('TIMEOUT', 'The call was not sent. It had no effect.')
}

const UNTRANSLATABLE_CHARACTER = '22021'

/** Whether the work has failed because it was withdrawn. */
export function isWithdrawal({ code, sqlState }: RatelimitError, { isWithdrawn }: Sending): boolean {
  return isWithdrawn && (code === 'TIMEOUT' || sqlState === UNTRANSLATABLE_CHARACTER)
}

/**
 * The parameters of a statement that is about to be handed to the driver. One of them notes when the statement
 * is sent: these drivers read it as they write the statement to a connection. With other drivers, the statement
 * counts as sent from now on.
 */
export function watchedParams(db: Database, params: unknown[], sending: Sending): unknown[] {
  const place = params.findIndex((each) => typeof each === 'string')
  sending.isSent = place < 0 || !wireSessionOf(db)
  if (!sending.isSent) params[place] = new WatchedText(String(params[place]), sending)
  return params
}

/** No text can have this character, so Postgres refuses the statement before it runs. */
const REFUSED = '\0'

/** A text that notes when a driver reads it. Drizzle's errors and its logger read it too, but otherwise. */
class WatchedText {
  readonly #text: string
  readonly #sending: Sending

  constructor(text: string, sending: Sending) {
    this.#text = text
    this.#sending = sending
  }

  /** For node-postgres, and drivers like it. */
  toPostgres(): string {
    return this.#send()
  }

  /** For postgres.js, which adds it to a text. */
  [Symbol.toPrimitive](hint: string): string {
    return hint === 'default' ? this.#send() : this.#text
  }

  /** For clients that send JSON in the place of a driver. Drizzle's logger makes JSON of the text alone. */
  toJSON(placeInAll: string): string {
    return placeInAll === '' ? this.#text : this.#send()
  }

  #send(): string {
    if (this.#sending.isWithdrawn) return REFUSED
    this.#sending.isSent = true
    return this.#text
  }
}
