import type { SQL } from 'drizzle-orm'
import { RatelimitError } from '../errors.ts'
import type { Database } from './database.ts'
import { toRatelimitError } from './database-error.ts'
import { bind, type Rendered, type Values } from './rendered.ts'

export type Row = Readonly<Record<string, unknown>>

/** Runs a rendered statement. */
export function run(db: Database, statement: Rendered, values: Values): Promise<readonly Row[]> {
  return execute(db, bind(statement, values))
}

/**
 * Runs a query through `db.execute`, which passes by a query cache and goes to the primary, as Drizzle's builders do not.
 *
 * @throws RatelimitError for whatever the database says.
 */
export async function execute(db: Database, query: SQL): Promise<readonly Row[]> {
  let result: unknown
  try {
    result = await db.execute(query)
  } catch (error) {
    throw toRatelimitError(error)
  }
  // node-postgres, PGlite and Neon answer with an object that has rows, postgres.js and Bun with the rows themselves.
  const rows = typeof result === 'object' && result !== null && 'rows' in result ? result.rows : result
  if (!Array.isArray(rows)) throw new RatelimitError('DATABASE', "The Drizzle driver's answer has no rows.")
  return rows
}
