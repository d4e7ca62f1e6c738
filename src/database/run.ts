import type { SQL } from 'drizzle-orm'
import { RatelimitError } from '../errors.ts'
import { oneAtATime, singleClient } from './clients.ts'
import type { Connection } from './connection.ts'
import type { Database } from './database.ts'
import { isRefusal, toRatelimitError } from './database-error.ts'
import { nameText, type Statement, type Value, type Values } from './statement.ts'
import { writtenQuery } from './written-query.ts'

export type Row = Readonly<Record<string, unknown>>

/** If the size of a table changes more often during one call, something else is wrong. */
const MAX_SIZE_CHANGES = 10

/**
 * Runs a statement by a plan that was made for a table of this size.
 *
 * A guarded statement takes the `size` that the table is believed to have. If it has another, the statement
 * reads and writes nothing, and runs again by the plan for that size.
 *
 * @throws RatelimitError for whatever the database says.
 */
export async function run(
  connection: Connection,
  size: TableSize,
  statementFor: (guarded: boolean) => Statement,
  values: Record<string, Value>,
  params: Values,
): Promise<readonly Row[]> {
  for (let tries = 0; tries < MAX_SIZE_CHANGES; tries++) {
    const { believed, plan } = size
    const keeps = plan !== undefined && connection.session !== undefined && !connection.keeping.refused
    if (!keeps) return runOnce(connection.db, statementFor(false), values, params)
    const guarded = size.isOld
    values['size'] = believed
    const sentAt = performance.now()
    const rows = await runKept(connection, statementFor(guarded), plan, values, params)
    const seen = guarded ? rows[0]?.['size'] : undefined
    if (seen === undefined) return rows
    size.saw(Number(seen), sentAt)
    if (Number(seen) === believed) return rows
  }
  throw new RatelimitError('DATABASE', 'The table went on growing and shrinking while it was asked.')
}

/**
 * Runs a statement by the plan of that name, which the connection keeps if it can.
 *
 * @throws RatelimitError for whatever the database says.
 */
export async function runKept(
  connection: Connection,
  statement: Statement,
  plan: string,
  values: Values,
  params: Values = {},
): Promise<readonly Row[]> {
  const { db, session, keeping, rawMode, isTransaction, single } = connection
  if (!session || keeping.refused) return runOnce(db, statement, values, params)
  const { sql, name } = statement.named.get(plan) ?? (await nameText(statement, plan))
  try {
    const query = session.prepareQuery(
      { sql, params: valuesInOrder(statement, values, params) },
      rawMode,
      name,
    )
    return rowsOf(await exclusively(single, () => query.execute()))
  } catch (reason) {
    const error = toRatelimitError(reason)
    if (!isRefusal(error)) throw error
    keeping.refused = true
    // In a caller's transaction nothing can be run any more.
    if (isTransaction) throw error
    return runOnce(db, statement, values, params)
  }
}

/** Runs a statement that the server plans anew. */
export function runOnce(
  db: Database,
  statement: Statement,
  values: Values,
  params: Values = {},
): Promise<readonly Row[]> {
  return execute(db, writtenQuery(statement.sql, valuesInOrder(statement, values, params)))
}

/**
 * Runs a query through `db.execute`, which skips a query cache and goes to the primary. Drizzle's builders
 * may do neither.
 *
 * @throws RatelimitError for whatever the database says.
 */
export async function execute(db: Database, query: SQL): Promise<readonly Row[]> {
  try {
    return rowsOf(await exclusively(singleClient(db), () => db.execute(query)))
  } catch (error) {
    throw toRatelimitError(error)
  }
}

/** On a single connection a statement must not get into the middle of a transaction of the limiter's. */
function exclusively<T>(client: object | undefined, send: () => PromiseLike<T>): PromiseLike<T> {
  return client ? oneAtATime(client, async () => send()) : send()
}

/** The values in the order of the statement's parameters: a call's own, or the limiter's. */
export function valuesInOrder({ names }: Statement, own: Values, params: Values): unknown[] {
  const values: unknown[] = []
  for (const name of names) {
    const value = own[name] !== undefined ? own[name] : params[name]
    if (value === undefined) throw new Error(`The statement's parameter ${name} has no value.`)
    values.push(value)
  }
  return values
}

/**
 * node-postgres, PGlite and Neon answer with an object that has rows, postgres.js and Bun with the rows
 * themselves.
 */
function rowsOf(result: unknown): readonly Row[] {
  const rows = typeof result === 'object' && result !== null && 'rows' in result ? result.rows : result
  if (!Array.isArray(rows))
    throw new RatelimitError(
      'OUTCOME_UNKNOWN',
      "The Drizzle driver's answer has no rows, so nobody knows whether the charge was made.",
    )
  return rows
}

/** For how long a size is believed. In five milliseconds a flood of new keys adds a few pages. */
const MAX_SIZE_AGE_MS = 5

/** From this size on, of 16 pages, a plan for fewer pages reads too much. */
const LARGE = 4

/**
 * How often a large table may shrink. After that, its statements are planned each time: each time it shrinks,
 * they get new names, and a connection keeps every name.
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

  /** Whether a statement has to ask how large the table is. */
  get isOld(): boolean {
    return performance.now() - this.#seenAt > MAX_SIZE_AGE_MS
  }

  /**
   * Which of a statement's plans to use: one that was made for a table of this size; undefined for none. Once
   * a large table has shrunk, Postgres may have made the plans for its size anew, for the small rest. So the
   * plans for large tables are given up.
   */
  get plan(): string | undefined {
    if (this.#believed < LARGE) return `size ${this.#believed}`
    return this.#shrunk < MAX_SHRUNK ? `size ${this.#believed}, ${this.#shrunk}` : undefined
  }

  /**
   * Learns the size that a statement found which was sent at that time. A size that was seen after the sending
   * is kept, because the statement may have waited for a row.
   */
  saw(size: number, sentAt: number): void {
    if (sentAt < this.#seenAt) return
    if (this.#believed >= LARGE && size < this.#believed) this.#shrunk++
    this.#believed = size
    this.#seenAt = sentAt
  }
}
