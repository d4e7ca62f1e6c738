import { entityKind } from 'drizzle-orm'
import type { RatelimitError } from '../errors.ts'
import { type Database, isTransaction } from './database.ts'

/**
 * What asks for rows as the driver gives them: nothing in 0.45, where the argument is a list of fields, and a
 * word in 1.0.
 */
type RawMode = 'raw' | undefined

/** A Drizzle session that accepts names for statements. */
export interface PreparingSession {
  prepareQuery(
    query: { readonly sql: string; readonly params: unknown[] },
    mode: RawMode,
    name: string,
  ): { execute(): PromiseLike<unknown> }
}

/**
 * Which statements a connection keeps, so that the server parses and plans them once.
 *
 * Without an option they are kept outside transactions only, where a refused statement can be sent again.
 * Poolers that hand each transaction another connection refuse them.
 * https://www.postgresql.org/docs/current/sql-prepare.html
 */
export class Prepared {
  readonly #wanted: boolean | undefined
  #refused = false
  readonly #sizes = new WeakMap<object, TableSize>()

  constructor(wanted: boolean | undefined) {
    this.#wanted = wanted
  }

  /** The session that sends prepared statements; undefined if statements are sent unprepared. */
  sessionFor(db: Database): PreparingSession | undefined {
    const wanted = this.#wanted ?? !isTransaction(db)
    return wanted && !this.#refused ? preparingSession(db) : undefined
  }

  /** What is known of the size of a table. */
  sizeOf(table: object): TableSize {
    const known = this.#sizes.get(table) ?? new TableSize()
    this.#sizes.set(table, known)
    return known
  }

  /**
   * Whether a pooler has refused the name; no statement is kept any more then. The refusal comes before the
   * statement is executed.
   */
  isRefusal({ sqlState }: RatelimitError): boolean {
    const refused = sqlState === DUPLICATE_NAME || sqlState === UNKNOWN_NAME
    this.#refused ||= refused
    return refused
  }
}

/** For how long a size is believed. In five milliseconds a flood of new keys adds a few pages. */
const MAX_SIZE_AGE_MS = 5

/** The largest size that a guard tells. */
const LARGEST = 4

/**
 * So often a table may shrink; then its statements are planned each time, for a connection keeps every name.
 */
const MAX_SHRUNK = 20

/** The size that a table is believed to have: a number that the statements' guard counts from 0. */
export class TableSize {
  #believed = 0
  #shrunk = 0
  #seenAt = Number.NEGATIVE_INFINITY

  get believed(): number {
    return this.#believed
  }

  /** Whether a prepared statement has to ask how large the table is. */
  get isOld(): boolean {
    return performance.now() - this.#seenAt > MAX_SIZE_AGE_MS
  }

  /**
   * Which of a statement's plans to use: one that was made for a table of this size; undefined for none. If
   * the table has shrunk from the largest size, plans for that size may have been made again for the small
   * rest, so they are given up.
   */
  get plan(): string | undefined {
    if (this.#believed < LARGEST) return `size ${this.#believed}`
    return this.#shrunk < MAX_SHRUNK ? `size ${LARGEST}, ${this.#shrunk}` : undefined
  }

  /**
   * Learns the size from a statement that was sent then. What was seen since is newer: a statement may wait
   * for a row.
   */
  saw(size: number, sentAt: number): void {
    if (sentAt < this.#seenAt) return
    if (this.#believed === LARGEST && size < LARGEST) this.#shrunk++
    this.#believed = size
    this.#seenAt = sentAt
  }
}

const DUPLICATE_NAME = '42P05'
const UNKNOWN_NAME = '26000'

/** Those of Drizzle's sessions that hand a name on to their driver. */
const PREPARING = ['NodePgSession', 'PostgresJsSession', 'NeonSession', 'VercelPgSession']

function preparingSession({ _: inner }: Database): PreparingSession | undefined {
  return inner?.session && prepares(inner.session) ? inner.session : undefined
}

function prepares(session: object): session is PreparingSession {
  return kindsOf(session).some((kind) => PREPARING.includes(kind))
}

export function rawMode(session: PreparingSession): RawMode {
  return kindsOf(session).includes('PgAsyncSession') ? 'raw' : undefined
}

const known = new WeakMap<object, readonly string[]>()

function kindsOf(session: object): readonly string[] {
  const kinds = known.get(session) ?? entityKinds(session.constructor)
  known.set(session, kinds)
  return kinds
}

/** Drizzle's names of a class and of those that it extends, which do not change when code is minified. */
function entityKinds(entity: unknown): string[] {
  if (typeof entity !== 'function' || !(entityKind in entity)) return []
  return [String(entity[entityKind]), ...entityKinds(Object.getPrototypeOf(entity))]
}
