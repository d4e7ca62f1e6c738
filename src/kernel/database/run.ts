import { entityKind, SQL } from 'drizzle-orm'
import { RatelimitError } from '../errors.ts'
import { type Connection, newSending, watchedParams, withdrawn } from './connection.ts'
import type { Database } from './database.ts'
import { isOutdated, isRefusal, neverSent, toRatelimitError } from './database-error.ts'
import { inLine } from './single-client.ts'
import { type KnownSize, nameText, type Statement, type Value, type Values } from './statement.ts'

export type Row = Readonly<Record<string, unknown>>

/** If a table changes its size more often than this during one call, something else is wrong. */
const MAX_SIZE_CHANGES = 10

/**
 * Runs a statement with a plan that was made for tables of these sizes.
 *
 * A guarded statement gets the expected size of each table. If a table has another size, the statement reads
 * and writes nothing, and runs again with the plan for that size.
 *
 * @throws RatelimitError for each error of the database or the driver.
 */
export function run(
  connection: Connection,
  sizes: readonly KnownSize[],
  statementFor: (guarded: boolean) => Statement,
  values: Record<string, Value>,
  params: Values,
  sizeChanges = 0,
): Promise<readonly Row[]> {
  const plan = planFor(sizes)
  const keeps = plan && connection.session && !connection.keeping.refused
  if (!keeps) return runOnce(connection, statementFor(false), values, params)
  // This runs for each call, so it is not `async`: each promise on the way costs time.
  if (!sizes.some(({ isOld }) => isOld)) return runKept(connection, statementFor(false), plan, values, params)
  return runGuarded(connection, sizes, statementFor, plan, values, params, sizeChanges)
}

async function runGuarded(
  connection: Connection,
  sizes: readonly KnownSize[],
  statementFor: (guarded: boolean) => Statement,
  plan: string,
  values: Record<string, Value>,
  params: Values,
  sizeChanges: number,
): Promise<readonly Row[]> {
  const expected = sizes.map((size) => size.expected)
  for (const [place, size] of expected.entries()) values[sizeParameter(place)] = size
  const sentAt = performance.now()
  const rows = await runKept(connection, statementFor(true), plan, values, params)
  const [first] = rows
  if (first?.[sizeParameter(0)] === undefined) return rows
  const seen = sizes.map((_, place) => Number(first[sizeParameter(place)]))
  for (const [place, size] of sizes.entries()) size.saw(seen[place] as number, sentAt)
  if (seen.every((size, place) => size === expected[place])) return rows
  if (sizeChanges < MAX_SIZE_CHANGES) {
    return run(connection, sizes, statementFor, values, params, sizeChanges + 1)
  }
  throw new RatelimitError('DATABASE', 'The table changed its size again and again. The call had no effect.')
}

/**
 * Runs a statement with the plan of that name. The connection keeps the plan if it can.
 *
 * @throws RatelimitError for each error of the database or the driver.
 */
export async function runKept(
  connection: Connection,
  statement: Statement,
  plan: string,
  values: Values,
  params: Values = {},
): Promise<readonly Row[]> {
  const { session, keeping, rawMode, isTransaction } = connection
  if (!session || keeping.refused) return runOnce(connection, statement, values, params)
  const { renewed } = keeping
  const own = renewed === 0 ? plan : `${plan}, ${renewed}`
  const { sql, name } = statement.named.get(own) ?? (await nameText(statement, own))
  try {
    return await sendStatement(connection, valuesInOrder(statement, values, params), (watched) =>
      session.prepareQuery({ sql, params: watched }, rawMode, name).execute(),
    )
  } catch (reason) {
    const error = toRatelimitError(reason)
    if (isRefusal(error)) keeping.refused = true
    else if (!isOutdated(error)) throw error
    else if (keeping.renewed === renewed) keeping.renewed++
    // In a caller's transaction, every further statement would fail.
    if (isTransaction) throw error
    return runOnce(connection, statement, values, params)
  }
}

/** Runs a statement that the server plans each time. */
export function runOnce(
  place: StatementPlace,
  statement: Statement,
  values: Values,
  params: Values = {},
): Promise<readonly Row[]> {
  return sendStatement(place, valuesInOrder(statement, values, params), (watched) =>
    place.db.execute(new WrittenQuery({ sql: statement.sql, params: watched })),
  )
}

type StatementPlace = Pick<Connection, 'db' | 'sending'>

/**
 * Hands a statement to the driver.
 *
 * @throws RatelimitError for each error of the database or the driver. What was not sent has charged nothing.
 */
async function sendStatement(
  { db, sending = newSending() }: StatementPlace,
  params: unknown[],
  execute: (params: unknown[]) => PromiseLike<unknown>,
): Promise<readonly Row[]> {
  // It may have to wait before it is sent.
  sending.isSent = false
  const send = () => {
    if (sending.isWithdrawn) throw withdrawn()
    return execute(watchedParams(db, params, sending))
  }
  try {
    return rowsOf(await inLine(db, send))
  } catch (reason) {
    const error = toRatelimitError(reason)
    throw sending.isSent ? error : neverSent(error)
  }
}

/** A query that is rendered already, because rendering takes Drizzle longer than running takes Postgres. */
class WrittenQuery extends SQL {
  static override readonly [entityKind]: string = 'SQL'
  readonly #query: { sql: string; params: unknown[] }

  constructor(query: { sql: string; params: unknown[] }) {
    super([])
    this.#query = query
  }

  override toQuery(): { sql: string; params: unknown[] } {
    return this.#query
  }
}

/**
 * Runs a query by `db.execute`, which goes to the primary and uses no query cache. Drizzle's builders guarantee
 * neither.
 *
 * @throws RatelimitError for each error of the database or the driver.
 */
export async function execute(db: Database, query: SQL): Promise<readonly Row[]> {
  try {
    return rowsOf(await inLine(db, () => db.execute(query)))
  } catch (error) {
    throw toRatelimitError(error)
  }
}

/** The values in the order of the statement's parameters: from the call, or else from the limiter. */
export function valuesInOrder({ names }: Statement, own: Values, params: Values): unknown[] {
  const values: unknown[] = []
  for (const name of names) {
    const value = own[name] !== undefined ? own[name] : params[name]
    if (value === undefined) throw new Error(`The parameter ${name} has no value.`)
    values.push(value)
  }
  return values
}

/**
 * The rows of a result. node-postgres, PGlite and Neon return an object with rows, postgres.js and Bun the
 * rows.
 */
function rowsOf(result: unknown): readonly Row[] {
  const rows = typeof result === 'object' && result !== null && 'rows' in result ? result.rows : result
  if (!Array.isArray(rows))
    throw new RatelimitError(
      'OUTCOME_UNKNOWN',
      "The Drizzle driver's answer has no rows: the call may or may not have taken effect.",
    )
  return rows
}

/** The name of the parameter and the column with the size of the statement's table at that place. */
export function sizeParameter(place: number): string {
  return place === 0 ? 'size' : `size${place}`
}

/** The name of the plan to use. Undefined if the statement should be planned each time. */
function planFor(sizes: readonly KnownSize[]): string | undefined {
  const plans = sizes.map(({ plan }) => plan)
  return plans.includes(undefined) ? undefined : plans.join('; ')
}
