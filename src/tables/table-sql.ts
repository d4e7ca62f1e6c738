import type { RateLimitTables } from '../../schema/index.ts'
import { checkOptions, checkSwitch, type NamesOf } from '../kernel/base/check-options.ts'
import { SHIPPED } from '../kernel/database/table-name.ts'
import { checkTablesGiven } from '../kernel/options/checks.ts'
import { createStatements, storageStatements } from './ddl.ts'

/** Options of how the tables are stored. */
export interface StorageOptions {
  /**
   * Whether the ephemeral table is logged too, for servers that empty UNLOGGED tables whenever they stop.
   * Default: `false`.
   */
  readonly logged?: boolean
}

export const STORAGE_NAMES: NamesOf<StorageOptions> = { logged: checkSwitch }

/**
 * The statements that create missing tables and their Postgres schema, as drizzle-kit's first migration does.
 * Each is safe to run again.
 *
 * For applications that do not migrate with drizzle-kit. It is a list, because some drivers accept only one
 * statement at a time.
 *
 * @param tables Default: the two tables of the package.
 * @throws RatelimitError `INVALID_OPTION`
 *
 * @example
 * ```ts
 * import { storageSql, tableSql } from 'drizzle-ratelimit'
 * import { db } from './app.ts'
 *
 * for (const statement of [...tableSql(), ...storageSql()]) await db.execute(statement)
 * ```
 */
export function tableSql(tables: RateLimitTables = SHIPPED): string[] {
  checkTablesGiven(tables)
  return [...new Set([tables.ephemeral, tables.durable].flatMap(createStatements))]
}

/**
 * The statements that make the ephemeral table UNLOGGED and set the storage parameters of both tables, as the
 * migration by `npx drizzle-ratelimit storage` does. Each is safe to run again.
 *
 * @param tables Default: the two tables of the package.
 * @param options With `logged: true` the ephemeral table is logged, and the rest is the same.
 * @throws RatelimitError `INVALID_OPTION`
 */
export function storageSql(tables: RateLimitTables = SHIPPED, options: StorageOptions = {}): string[] {
  checkTablesGiven(tables)
  checkOptions(options, STORAGE_NAMES)
  return [
    ...storageStatements(tables.ephemeral, 'ephemeral', options.logged),
    ...storageStatements(tables.durable, 'durable', options.logged),
  ]
}
