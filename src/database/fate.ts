import { sql } from 'drizzle-orm'
import type { Database } from './database.ts'
import { execute } from './run.ts'

/**
 * The id of a transaction. Other transactions can look up its status by the id. A savepoint has the id of its
 * transaction.
 *
 * @throws RatelimitError for each error of the database or the driver.
 */
export async function idOf(tx: Database): Promise<string> {
  const [row] = await execute(tx, sql`select pg_catalog.pg_current_xact_id()::text as id`)
  return String(row?.['id'])
}

/**
 * Whether the transaction was rolled back. If not, it is still running or was committed, or it is so old that
 * Postgres has forgotten it.
 *
 * @throws RatelimitError for each error of the database or the driver.
 */
export async function wasRolledBack(db: Database, id: string): Promise<boolean> {
  const [row] = await execute(db, sql`select pg_catalog.pg_xact_status(${id}::text::xid8) as status`)
  return row?.['status'] === 'aborted'
}
