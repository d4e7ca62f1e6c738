import { sql } from 'drizzle-orm'
import type { Database } from './database.ts'
import { execute } from './run.ts'

/**
 * The id of a transaction, by which others ask for its fate. A savepoint in it has the same.
 *
 * @throws RatelimitError for whatever the database says.
 */
export async function idOf(tx: Database): Promise<string> {
  const [row] = await execute(tx, sql`select pg_catalog.pg_current_xact_id()::text as id`)
  return String(row?.['id'])
}

/**
 * Whether the transaction of this id was rolled back. If not, it runs, or was committed, or is so old that
 * Postgres has forgotten it.
 *
 * @throws RatelimitError for whatever the database says.
 */
export async function wasRolledBack(db: Database, id: string): Promise<boolean> {
  const [row] = await execute(db, sql`select pg_catalog.pg_xact_status(${id}::text::xid8) as status`)
  return row?.['status'] === 'aborted'
}
