import type { SQL } from 'drizzle-orm'
import { RatelimitError } from '../errors.ts'
import { type Database, isTransaction } from './database.ts'
import { toRatelimitError } from './database-error.ts'
import type { Naming } from './naming.ts'
import { bind, paramsOf, type Rendered, type Values } from './rendered.ts'

export type Row = Readonly<Record<string, unknown>>

/** Where statements are run, and whether with names. */
export interface Runner {
  readonly db: Database
  readonly naming: Naming
}

/**
 * Runs a rendered statement, by its name where that can be.
 *
 * @throws RatelimitError for whatever the database says.
 */
export async function run(
  { db, naming }: Runner,
  statement: Rendered,
  values: Values,
): Promise<readonly Row[]> {
  const session = naming.sessionFor(db)
  if (!session) return execute(db, bind(statement, values))
  const query = { sql: statement.sql, params: paramsOf(statement, values) }
  const name = await statement.preparedName()
  try {
    return await rowsOf(() => session.prepareQuery(query, undefined, name).execute())
  } catch (error) {
    // In a caller's transaction nothing can be run any more.
    const again = error instanceof RatelimitError && naming.isRefusal(error) && !isTransaction(db)
    if (!again) throw error
    return execute(db, bind(statement, values))
  }
}

/**
 * Runs a query through `db.execute`, which passes by a query cache and goes to the primary, as Drizzle's builders do not.
 *
 * @throws RatelimitError for whatever the database says.
 */
export function execute(db: Database, query: SQL): Promise<readonly Row[]> {
  return rowsOf(() => db.execute(query))
}

async function rowsOf(query: () => PromiseLike<unknown>): Promise<readonly Row[]> {
  let result: unknown
  try {
    result = await query()
  } catch (error) {
    throw toRatelimitError(error)
  }
  // node-postgres, PGlite and Neon answer with an object that has rows, postgres.js and Bun with the rows themselves.
  const rows = typeof result === 'object' && result !== null && 'rows' in result ? result.rows : result
  if (!Array.isArray(rows)) throw new RatelimitError('DATABASE', "The Drizzle driver's answer has no rows.")
  return rows
}
