import type { PgSchema } from 'drizzle-orm/pg-core'
import { RatelimitError } from '../src/errors.ts'
import { checkOptions, type NamesOf } from '../src/options.ts'
import { type RateLimitTable, rateLimitTable } from './table.ts'

export type { RateLimitTable } from './table.ts'

/**
 * Postgres cuts names at 63 bytes. The index of a table has the table's name and `_prefix_expires_at_index`.
 */
const MAX_NAME_BYTES = 36

const EPHEMERAL = 'rate_limit_ephemeral'
const DURABLE = 'rate_limit_durable'

/** The two tables of a limiter. */
export interface RateLimitTables {
  /**
   * For protection against abuse. Once the storage migration has run it is UNLOGGED: fast, and empty after a
   * crash.
   */
  readonly ephemeral: RateLimitTable
  /** For quotas. It is logged, so it survives a crash and reaches replicas and backups. */
  readonly durable: RateLimitTable
}

/** Other names, or another Postgres schema, for the two tables. */
export interface RateLimitTablesOptions {
  /** The Postgres schema, made by `pgSchema`, that you export too. Default: `public`. */
  readonly schema?: PgSchema
  /** The name of the UNLOGGED table. Default: `rate_limit_ephemeral`. */
  readonly ephemeral?: string
  /** The name of the logged table. Default: `rate_limit_durable`. */
  readonly durable?: string
}

const TABLES_NAMES: NamesOf<RateLimitTablesOptions> = { schema: true, ephemeral: true, durable: true }

/**
 * Declares the two tables under names of your own.
 *
 * drizzle-kit finds exported tables only: export both, and the schema they are in.
 *
 * @throws RatelimitError `INVALID_OPTION` for names that are equal, empty or too long, and for a schema that is
 * none.
 *
 * @example
 * ```ts
 * import { pgSchema } from 'drizzle-orm/pg-core'
 * import { rateLimitTables } from 'drizzle-ratelimit/schema'
 *
 * export const limits = pgSchema('limits')
 * export const { ephemeral, durable } = rateLimitTables({ schema: limits })
 * ```
 */
export function rateLimitTables(options: RateLimitTablesOptions = {}): RateLimitTables {
  checkOptions(options, TABLES_NAMES)
  const { schema, ephemeral = EPHEMERAL, durable = DURABLE } = options
  if (schema !== undefined && typeof schema?.table !== 'function') {
    throw new RatelimitError('INVALID_OPTION', 'The schema must be made by pgSchema.')
  }
  if (ephemeral === durable || ![ephemeral, durable].every(isName)) {
    throw new RatelimitError(
      'INVALID_OPTION',
      `The tables need two different names of at most ${MAX_NAME_BYTES} bytes: the names of their keys and indexes are longer.`,
    )
  }
  return { ephemeral: rateLimitTable(ephemeral, schema), durable: rateLimitTable(durable, schema) }
}

function isName(name: unknown): boolean {
  if (typeof name !== 'string' || name === '') return false
  return new TextEncoder().encode(name).length <= MAX_NAME_BYTES
}

/** The UNLOGGED table `rate_limit_ephemeral`. */
export const rateLimitEphemeral: RateLimitTable = rateLimitTable(EPHEMERAL)

/** The logged table `rate_limit_durable`. */
export const rateLimitDurable: RateLimitTable = rateLimitTable(DURABLE)
