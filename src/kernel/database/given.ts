import { is } from 'drizzle-orm'
import { PgTable } from 'drizzle-orm/pg-core'
import type { RateLimitTables } from '../../../schema/index.ts'
import { RatelimitError } from '../errors.ts'
import type { Database } from './database.ts'

/** @throws RatelimitError `INVALID_OPTION` */
export function checkDatabase(db: Database): void {
  if (typeof db?.execute !== 'function') {
    throw new RatelimitError('INVALID_OPTION', 'db must be a Drizzle Postgres database or transaction.')
  }
  if (lacksClient(db)) {
    throw new RatelimitError('INVALID_OPTION', 'db has no client: drizzle was called with undefined.')
  }
}

/** Whether `drizzle` was called without a client. Drivers notice it only at their first statement. */
function lacksClient({ _: inner }: Database): boolean {
  const session = inner?.session
  if (session === undefined || !('client' in session)) return false
  return session.client === undefined || session.client === null
}

/** @throws RatelimitError `INVALID_OPTION` */
export function checkTablesGiven(tables: RateLimitTables): void {
  if (!isTable(tables?.ephemeral) || !isTable(tables?.durable)) {
    throw new RatelimitError('INVALID_OPTION', 'tables must come from rateLimitTables.')
  }
}

function isTable(table: unknown): boolean {
  // Another table has no such column. Drizzle's `is` fails on an object without a prototype.
  return typeof table === 'object' && table !== null && 'prevCount' in table && is(table, PgTable)
}
