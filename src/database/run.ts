import { entityKind, SQL } from 'drizzle-orm'
import { RatelimitError } from '../errors.ts'
import { type Database, isTransaction } from './database.ts'
import { toRatelimitError } from './database-error.ts'
import { type Prepared, rawMode } from './prepared.ts'
import { nameText, type Statement, type Value } from './statement.ts'

export type Row = Readonly<Record<string, unknown>>

/** Where statements are run, and which of them are kept there. */
export interface Connection {
  readonly db: Database
  readonly prepared: Prepared
}

/**
 * Runs a statement, prepared where that can be, by the plan of that name.
 *
 * @throws RatelimitError for whatever the database says.
 */
export async function run(
  { db, prepared }: Connection,
  statement: Statement,
  values: Value[],
  plan: string | undefined,
): Promise<readonly Row[]> {
  const session = plan === undefined ? undefined : prepared.sessionFor(db)
  if (!session || plan === undefined) return runOnce(db, statement, values)
  const { sql, name } = statement.named.get(plan) ?? (await nameText(statement, plan))
  try {
    return rowsOf(await session.prepareQuery({ sql, params: values }, rawMode(session), name).execute())
  } catch (reason) {
    const error = toRatelimitError(reason)
    // In a caller's transaction nothing can be run any more.
    if (!prepared.isRefusal(error) || isTransaction(db)) throw error
    return runOnce(db, statement, values)
  }
}

/** Runs a statement that the server plans anew. */
export function runOnce(db: Database, { sql }: Statement, values: Value[]): Promise<readonly Row[]> {
  return execute(db, new WrittenQuery(sql, values))
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

/**
 * A query that is written already: Drizzle takes longer to put the pieces together than Postgres to run them.
 */
class WrittenQuery extends SQL {
  static override readonly [entityKind]: string = 'SQL'
  readonly #query: { sql: string; params: unknown[] }

  constructor(sql: string, params: unknown[]) {
    super([])
    this.#query = { sql, params }
  }

  override toQuery(): { sql: string; params: unknown[] } {
    return this.#query
  }
}

/**
 * node-postgres, PGlite and Neon answer with an object that has rows, postgres.js and Bun with the rows
 * themselves.
 */
function rowsOf(result: unknown): readonly Row[] {
  const rows = typeof result === 'object' && result !== null && 'rows' in result ? result.rows : result
  if (!Array.isArray(rows)) throw new RatelimitError('DATABASE', "The Drizzle driver's answer has no rows.")
  return rows
}
