import { is } from 'drizzle-orm'
import { PgTable } from 'drizzle-orm/pg-core'
import type { RateLimitTables } from '../../schema/index.ts'
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
  if (!is(tables?.ephemeral, PgTable) || !is(tables?.durable, PgTable)) {
    throw new RatelimitError('INVALID_OPTION', 'tables must come from rateLimitTables.')
  }
}
