import { is } from 'drizzle-orm'
import { PgPolicy, type PgSchema } from 'drizzle-orm/pg-core'
import { checkOptions, checkSwitch, type NamesOf } from '../src/kernel/base/check-options.ts'
import { RatelimitError } from '../src/kernel/errors.ts'
import { type RateLimitTable, rateLimitTable } from './table.ts'

export type { RateLimitTable } from './table.ts'

/** Postgres cuts names after 63 bytes. An index has the table's name and `_prefix_expires_at_index`. */
const MAX_NAME_BYTES = 36

const EPHEMERAL = 'rate_limit_ephemeral'
const DURABLE = 'rate_limit_durable'

/** The two tables of a limiter. */
export interface RateLimitTables {
  /** For protection against abuse. The storage migration makes it UNLOGGED: fast, and empty after a crash. */
  readonly ephemeral: RateLimitTable
  /** For quotas. It is logged, so it survives a crash and reaches replicas and backups. */
  readonly durable: RateLimitTable
}

/** Options of `rateLimitTables`. */
export interface RateLimitTablesOptions {
  /** The Postgres schema, made by `pgSchema`. Export it too. Default: `public`. */
  readonly schema?: PgSchema
  /** The name of the UNLOGGED table. Default: `rate_limit_ephemeral`. */
  readonly ephemeral?: string
  /** The name of the logged table. Default: `rate_limit_durable`. */
  readonly durable?: string
  /**
   * Whether row level security is on, so that only the owner, and roles with a policy, reach the rows. Without
   * it in the schema, `drizzle-kit push` switches it off. Default: `false`.
   */
  readonly rls?: boolean
  /** The policies of both tables, from `pgPolicy`. They need `rls: true`. Default: none. */
  readonly policies?: readonly PgPolicy[]
}

const TABLES_NAMES: NamesOf<RateLimitTablesOptions> = {
  schema: true,
  ephemeral: true,
  durable: true,
  rls: checkSwitch,
  policies: true,
}

/**
 * Declares the two tables under names of your own, or in a Postgres schema.
 *
 * drizzle-kit finds only exported tables: export both, and their schema.
 *
 * @throws RatelimitError `INVALID_OPTION` for names that are equal, empty or too long, for a schema that
 * `pgSchema` has not made, and for policies that `pgPolicy` has not made or that lack `rls: true`.
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
  const { schema, ephemeral = EPHEMERAL, durable = DURABLE, rls = false, policies = [] } = options
  if (schema !== undefined && typeof schema?.table !== 'function') {
    throw new RatelimitError('INVALID_OPTION', 'The schema must be made by pgSchema.')
  }
  if (ephemeral === durable || ![ephemeral, durable].every(isName)) {
    throw new RatelimitError(
      'INVALID_OPTION',
      `The tables need two different names of at most ${MAX_NAME_BYTES} bytes, because the names of their indexes are longer.`,
    )
  }
  if (!Array.isArray(policies) || !policies.every((policy) => is(policy, PgPolicy))) {
    throw new RatelimitError('INVALID_OPTION', 'policies must be a list of what pgPolicy makes.')
  }
  if (policies.length > 0 && !rls) {
    throw new RatelimitError('INVALID_OPTION', 'policies need rls: true.')
  }
  const declaration = { schema, rls, policies }
  return {
    ephemeral: rateLimitTable(ephemeral, declaration),
    durable: rateLimitTable(durable, declaration),
  }
}

function isName(name: unknown): boolean {
  if (typeof name !== 'string' || name === '') return false
  return new TextEncoder().encode(name).length <= MAX_NAME_BYTES
}

/** The UNLOGGED table `rate_limit_ephemeral`. */
export const rateLimitEphemeral: RateLimitTable = rateLimitTable(EPHEMERAL)

/** The logged table `rate_limit_durable`. */
export const rateLimitDurable: RateLimitTable = rateLimitTable(DURABLE)
