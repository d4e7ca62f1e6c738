import { and, asc, eq, lte, not, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../database/statement.ts'
import { builder, chain, isTheRow, link, Parameters } from './builder.ts'
import { isOfPeriods } from './periods.ts'
import { isLocked, isOwn, placeOf } from './places.ts'

/** The most rows that one sweep deletes, so that it stays short. */
export const MAX_SWEPT = 100

/**
 * The statement that sweeps. It deletes the rows of a prefix that expired longest ago.
 *
 * It locks a row before it deletes it, and skips rows that others have locked. So it never waits, and never
 * deletes a row that was renewed meanwhile. It uses `now()` instead of the clock, because Postgres cannot
 * search an index by a volatile function.
 *
 * @param keepEnded Whether the rows of fixed and calendar windows stay.
 */
export function sweepStatement(table: RateLimitTable, keepEnded: boolean): Statement {
  const parameters = new Parameters()
  const expired = builder
    .select(placeOf(table))
    .from(table)
    .where(
      and(
        eq(table.prefix, parameters.text('prefix')),
        isOwn(table),
        isExpired(table, keepEnded, parameters, sql`now()`),
      ),
    )
    .orderBy(asc(table.expiresAt))
    .limit(MAX_SWEPT)
    .for('update', { skipLocked: true })
  const deleted = builder.delete(table).where(isLocked(table, EXPIRED)).returning({ key: table.key })
  return parameters.render(
    chain(
      [link(EXPIRED, expired), link('ratelimit_deleted', deleted)],
      sql`select count(*) as deleted from ratelimit_deleted`,
    ),
  )
}

const EXPIRED = 'ratelimit_expired'

/** Whether a row has expired by the injected clock, or else by `now`. With `keepEnded`, no window ever has. */
export function isExpired(
  table: RateLimitTable,
  keepEnded: boolean,
  parameters: Parameters,
  now: SQL,
): SQL | undefined {
  const clock = sql`to_timestamp(${parameters.number('clock')} / 1000::float8)`
  return and(
    ...(keepEnded ? [not(isOfPeriods(table))] : []),
    lte(table.expiresAt, sql`coalesce(${clock}, ${now})`),
  )
}

/** The statement that removes the row of a key, so that its limit is new again. */
export function removeStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  return parameters.render(
    builder
      .delete(table)
      .where(and(isTheRow(table, parameters), isOwn(table)))
      .getSQL(),
  )
}
