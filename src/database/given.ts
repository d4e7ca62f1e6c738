import { getTableColumns, is } from 'drizzle-orm'
import { PgTable } from 'drizzle-orm/pg-core'
import { type RateLimitTables, rateLimitDurable } from '../../schema/index.ts'
import { RatelimitError } from '../errors.ts'
import type { Database } from './database.ts'
import { lacksClient } from './session.ts'

/** @throws RatelimitError `INVALID_OPTION` */
export function checkDatabase(db: Database): void {
  if (typeof db?.execute !== 'function') {
    throw new RatelimitError('INVALID_OPTION', 'db must be a Drizzle Postgres database or transaction.')
  }
  if (lacksClient(db)) {
    throw new RatelimitError('INVALID_OPTION', 'db has no client: drizzle was called with undefined.')
  }
}

/** @throws RatelimitError `INVALID_OPTION` */
export function checkTablesGiven(tables: RateLimitTables): void {
  if (!isTable(tables?.ephemeral) || !isTable(tables?.durable)) {
    throw new RatelimitError('INVALID_OPTION', 'tables must come from rateLimitTables.')
  }
}

/** Whether it is a table that has the columns. */
function isTable(table: unknown): boolean {
  // Drizzle's `is` fails on an object without a prototype.
  if (typeof table !== 'object' || table === null || Object.getPrototypeOf(table) === null) return false
  return is(table, PgTable) && Object.keys(getTableColumns(rateLimitDurable)).every((name) => name in table)
}
