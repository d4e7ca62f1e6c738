import {
  bigint,
  doublePrecision,
  index,
  type PgPolicy,
  type PgSchema,
  pgTable,
  primaryKey,
  text,
  timestamp,
} from 'drizzle-orm/pg-core'

/**
 * The columns of both tables. The names are explicit, because the `casing` option differs between versions of
 * Drizzle. The type of the names is `string`, as in RateLimitColumns. Each table gets its own builders, because
 * Drizzle binds a builder to its table.
 */
function columns(): RateLimitColumns {
  return {
    prefix: text('prefix' as string).notNull(),
    key: text('key' as string).notNull(),
    count: bigint('count' as string, { mode: 'number' }),
    prevCount: bigint('prev_count' as string, { mode: 'number' }),
    windowStart: timestamp('window_start' as string, { withTimezone: true }),
    tokens: doublePrecision('tokens' as string),
    lastRefill: timestamp('last_refill' as string, { withTimezone: true }),
    expiresAt: timestamp('expires_at' as string, { withTimezone: true }).notNull(),
  }
}

type TimeColumn = ReturnType<typeof timestamp>
type CountColumn = Extract<ReturnType<typeof bigint>, { _: { data: number } }>

// These types come from the builder functions. Drizzle's own type names differ between 0.45 and 1.0, and the
// emitted declarations must mean the same with both.
type RateLimitColumns = {
  prefix: ReturnType<ReturnType<typeof text>['notNull']>
  key: ReturnType<ReturnType<typeof text>['notNull']>
  count: CountColumn
  prevCount: CountColumn
  windowStart: TimeColumn
  tokens: ReturnType<typeof doublePrecision>
  lastRefill: TimeColumn
  expiresAt: ReturnType<TimeColumn['notNull']>
}

/** One of the two tables: a Drizzle table like any other, to select from, to join and to insert into. */
export type RateLimitTable = ReturnType<typeof pgTable<string, RateLimitColumns>>

/** How a table is declared. */
export interface Declaration {
  /** Default: `public`. */
  readonly schema?: PgSchema | undefined
  /** Whether row level security is on. Default: `false`. */
  readonly rls?: boolean
  readonly policies?: readonly PgPolicy[]
}

/** Declares one table. */
export function rateLimitTable(
  name: string,
  { schema, rls = false, policies = [] }: Declaration = {},
): RateLimitTable {
  // The types of the two functions differ only in the schema's name. With that name there would be two types of
  // table.
  const declare = (schema?.table ?? pgTable) as typeof pgTable
  // The index has no storage parameters, because drizzle-kit 0.31 would push it again each time. It has no
  // name, because names collide.
  const declared = declare(name, columns(), (table) => [
    primaryKey({ columns: [table.prefix, table.key] }),
    index().on(table.prefix, table.expiresAt),
    ...policies,
  ])
  if (rls) declared.enableRLS()
  return declared
}
