import type { SQL } from 'drizzle-orm'
import { RatelimitError } from '../errors.ts'
import type { Connection } from './connection.ts'
import type { Database } from './database.ts'
import { isRefusal, toRatelimitError } from './database-error.ts'
import { nameText, type Statement, type Value, type Values } from './statement.ts'
import { writtenQuery } from './written-query.ts'

export type Row = Readonly<Record<string, unknown>>

/** If the size of a table changes more often during one call, something else is wrong. */
const MAX_SIZE_CHANGES = 10

/**
 * Runs a statement by a plan that was made for tables of these sizes.
 *
 * A guarded statement takes the `size` that each table is believed to have. If one has another, the statement
 * reads and writes nothing, and runs again by the plan for that size.
 *
 * @throws RatelimitError for whatever the database says.
 */
export async function run(
  connection: Connection,
  sizes: readonly TableSize[],
  statementFor: (guarded: boolean) => Statement,
  values: Record<string, Value>,
  params: Values,
): Promise<readonly Row[]> {
  for (let tries = 0; tries < MAX_SIZE_CHANGES; tries++) {
    const plan = planFor(sizes)
    const keeps = plan !== undefined && connection.session !== undefined && !connection.keeping.refused
    if (!keeps) return runOnce(connection.db, statementFor(false), values, params)
    const guarded = sizes.some(({ isOld }) => isOld)
    const believed = sizes.map((size) => size.believed)
    for (const [place, size] of believed.entries()) values[sizeParameter(place)] = size
    const sentAt = performance.now()
    const rows = await runKept(connection, statementFor(guarded), plan, values, params)
    const [first] = rows
    if (!guarded || first?.[sizeParameter(0)] === undefined) return rows
    const seen = sizes.map((_, place) => Number(first[sizeParameter(place)]))
    for (const [place, size] of sizes.entries()) size.saw(seen[place] as number, sentAt)
    if (seen.every((size, place) => size === believed[place])) return rows
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
  const { db, session, keeping, rawMode, isTransaction } = connection
  if (!session || keeping.refused) return runOnce(db, statement, values, params)
  const { sql, name } = statement.named.get(plan) ?? (await nameText(statement, plan))
  try {
    const query = session.prepareQuery(
      { sql, params: valuesInOrder(statement, values, params) },
      rawMode,
      name,
    )
    return rowsOf(await query.execute())
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
    return rowsOf(await db.execute(query))
  } catch (error) {
    throw toRatelimitError(error)
  }
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

/** The parameter and the column with the size of a table of a statement: of the first, the second and so on. */
export function sizeParameter(place: number): string {
  return place === 0 ? 'size' : `size${place}`
}

/** Which of a statement's plans to use; undefined for none. */
function planFor(sizes: readonly TableSize[]): string | undefined {
  const plans = sizes.map(({ plan }) => plan)
  return plans.includes(undefined) ? undefined : plans.join('; ')
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
