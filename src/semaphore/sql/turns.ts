import { type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import { builder, type Parameters } from '../../kernel/sql/builder.ts'
import { forEach, onGrid, SQL_NAMES, STATE_COLUMNS, toColumn } from '../../kernel/sql/columns.ts'
import { NO_STATE, newRows } from '../../kernel/sql/rows.ts'
import { MAX_SLOTS } from '../plan.ts'

// The processes that wait for slots of a key take turns. The row with the number 0 says for whom the next slot
// is kept: `count` is the turn, and `last_refill` its end. All times are those of the database, whatever clock
// is injected: it may stand still, and the turn of a process that has died must end.

/** How long a slot is kept. It is longer than the pause between two looks. */
const KEPT_MS = sql.raw('250::float8')

/** When that is renewed, so that few looks write. */
const RENEWED_MS = sql.raw('125::float8')

/** Times in milliseconds are below this until the year 2248. */
const TIMES = 2 ** 43

/** A smaller turn comes first: that of a larger limit, and of the process that has waited longer. */
export function turnNumber(limit: number, since: number): number {
  return (MAX_SLOTS - limit) * TIMES + since
}

const ALL_SLOTS = sql.raw(`${MAX_SLOTS}::float8`)
const EACH = sql.raw(`${TIMES}::float8`)

/** The same in SQL. */
export function turnOf(limit: SQL): SQL {
  return sql`(${ALL_SLOTS} - ${limit}::float8) * ${EACH} + coalesce(since, at)`
}

/** Whether a slot is kept. If the clock was set back, the row is ahead, and counts no more. */
export const IS_KEPT: SQL = sql`coalesce(kept_until > at and kept_until <= at + ${KEPT_MS}, false)`

/** Whether the slot that is kept would be within the limit of those that wait for it. */
export const HAS_USE: SQL = sql`pg_catalog.cardinality(leased)::float8 < ${ALL_SLOTS} - floor(kept_for / ${EACH})`

/**
 * Keeps the next slot of keys for requests that wait and got none, and ends the turns of those that got one. It
 * may wait for another statement that does, and all of them write in the order of the keys.
 */
export function turn(table: RateLimitTable, parameters: Parameters, keys: SQL, taken: SQL): SQL {
  const until = sql<number>`case when got then at else at + ${KEPT_MS} end`
  const begins = sql`${parameters.integer('waits')} = 1
    and (not is_kept or turn < kept_for or turn = kept_for and kept_until <= at + ${RENEWED_MS})`
  const row = {
    ...NO_STATE,
    count: sql`turn::bigint`,
    lastRefill: toColumn('lastRefill', until),
    expiresAt: toColumn('expiresAt', onGrid(until, parameters)),
  }
  const got = sql`exists (select from ${taken} as slot where slot.place = of_key.place)`
  // The barrier lets Postgres look once.
  const from = sql`(select *, ${got} as got from ${keys} as of_key offset 0) as of_key
    where case when got then is_kept and turn = kept_for else ${begins} end
    order by place`
  return builder
    .insert(table)
    .select(newRows(parameters.text('prefix'), sql`key || '#0000'`, row, from))
    .onConflictDoUpdate({
      target: [table.prefix, table.key],
      set: {
        ...forEach(STATE_COLUMNS, (column) => sql.raw(`excluded.${SQL_NAMES[column]}`)),
        expiresAt: sql`greatest(${table.expiresAt}, excluded.expires_at)`,
      },
    })
    .getSQL()
}
