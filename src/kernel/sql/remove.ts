import { and, asc, eq, lte, not, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../database/statement.ts'
import type { AnyAlgorithm } from '../limits/algorithm.ts'
import { builder, chain, isTheRow, link, Parameters } from './builder.ts'
import { forEach, MAX_TIME, STATE_COLUMNS, toColumn } from './columns.ts'
import { CLOCK_MS } from './levels.ts'
import { isLocked, isOfPeriods, isOwn, placeOf } from './places.ts'

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

export function removeStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  return parameters.render(
    builder
      .delete(table)
      .where(and(isTheRow(table, parameters), isOwn(table)))
      .getSQL(),
  )
}

/**
 * The statement that resets a limit that does not start full. It inserts the row with the whole limit, or
 * replaces the state of the row. The parameters have the names of the state's columns.
 *
 * If another transaction holds the row, it waits, and Postgres works out the new state afterwards. So the time
 * in it is later than the wait.
 */
export function fillStatement(
  table: RateLimitTable,
  { columns, datedBy }: AnyAlgorithm,
  injectedClock: boolean,
): Statement {
  const parameters = new Parameters()
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const state = {
    ...forEach(STATE_COLUMNS, (column) => {
      if (!columns.includes(column)) return toColumn(column, undefined)
      return toColumn(column, column === datedBy ? clock : parameters.number(column))
    }),
    // Without its row, the key would have less.
    expiresAt: toColumn('expiresAt', MAX_TIME),
  }
  const filled = builder
    .insert(table)
    .values({ prefix: parameters.text('prefix'), key: parameters.text('key'), ...state })
    .onConflictDoUpdate({ target: [table.prefix, table.key], set: state })
    .getSQL()
  return parameters.render(filled)
}
