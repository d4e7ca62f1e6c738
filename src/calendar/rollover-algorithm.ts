import { type SQL, sql } from 'drizzle-orm'
import { checkOptions } from '../kernel/base/check-options.ts'
import type { Algorithm, Expressions, Numbers } from '../kernel/limits/algorithm.ts'
import { isNear, isNearNumber } from '../kernel/limits/limiter.ts'
import type { ColumnOf } from '../kernel/limits/rows.ts'
import { countAfter, countNumberAfter } from '../kernel/limits/window.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { calendarAlgorithm, endNumberOf, isOver, nextEndIn, settledNumber } from './calendar-algorithm.ts'
import type { Rollover } from './periods.ts'

type Param = 'periodStart' | 'periodEnd' | 'driftMs' | 'limit' | 'carriedMax' | 'previousStart'

/**
 * A calendar window that adds what was left of the last period.
 *
 * Its rows are those of a calendar window, so that a plan can change between the two. But `tokens` is the
 * amount that was carried over, as a negative number, which a calendar window never has there. A row therefore
 * does not know the most that was settled, and after a refund a threshold can be crossed again.
 *
 * At most `tokens` are carried over, so after an idle period it is always `carriedMax`.
 */
export const rolloverAlgorithm: Algorithm<
  ColumnOf<'calendarWindow'>,
  'periodStart' | 'periodEnd' | 'driftMs' | 'carriedMax' | 'previousStart'
> = {
  ...calendarAlgorithm,
  name: 'rolloverWindow',
  params: ['periodStart', 'periodEnd', 'driftMs', 'carriedMax', 'previousStart'],
  settled: { now: settledNumber, most: settledNumber },

  sql: {
    ...calendarAlgorithm.sql,
    // A row of an earlier period counts too: it says what was left.
    holds: ({ windowStart }, clock, { periodMs, periodEnd }) =>
      sql`${windowStart} - ${clock} <= ${periodMs} and ${windowStart} < ${periodEnd}`,
    advance: (row, _clock, params) => {
      const { windowStart } = row
      const ended = isOver(windowStart, params.periodStart, params.driftMs)
      const isIdle = isOver(windowStart, params.previousStart, params.driftMs)
      const before = sql<number>`case when ${isIdle} then ${params.carriedMax} else ${carriedRest(row, params)} end`
      const unless = (value: SQL, other: SQL) =>
        sql<number>`case when ${ended} then ${other} else ${value} end`
      return {
        count: unless(row.count, sql`0::float8`),
        prevCount: unless(row.prevCount, sql`0::float8`),
        tokens: unless(row.tokens, sql`0::float8 - ${before}`),
        windowStart: unless(windowStart, params.periodStart),
      }
    },
    // A new key: without a row, no period is counted as idle.
    fresh: (now, params) => ({
      ...calendarAlgorithm.sql.fresh(now, params),
      tokens: sql`'Infinity'::float8`,
    }),
    available: (state, _now, params) => sql`${carriedCapacity(state, params)} - ${state.count}`,
    consume: ({ count, prevCount, tokens, windowStart }, _now, _available, amount, _params, reserved) => {
      const next = countAfter(count, amount)
      return {
        count: next,
        prevCount: sql`least(${countAfter(prevCount, reserved)}, ${next})`,
        windowStart,
        tokens: sql`least(${tokens}, 0::float8)`,
      }
    },
    capacity: carriedCapacity,
    // What is left is carried over, however long the key is idle.
    expiresAt: () => sql`8e15::float8`,
    isRecent: ({ windowStart }, { periodStart, driftMs }) =>
      sql`(${windowStart} <= ${periodStart} or ${isNear(windowStart, periodStart, driftMs)})`,
    // Its rows never expire, so their expiry does not show their period.
    isOfPeriod: ({ windowStart }, _expires, { periodStart, driftMs }, _onGrid, paid) => {
      const isPaid = paid ? sql` or coalesce(${windowStart} = ${paid()}, false)` : sql``
      return sql`(${windowStart} <= ${periodStart} or ${isNear(windowStart, periodStart, driftMs)}${isPaid})`
    },
  },
  numbers: {
    ...calendarAlgorithm.numbers,
    fresh: (now, params) => ({ ...calendarAlgorithm.numbers.fresh(now, params), tokens: NEW }),
    available: (state, time, params) => {
      const { limit, carriedMax } = params
      if (time < endNumberOf(state, params)) return capacityNumber(state, params) - state.count
      if (state.tokens === NEW) return limit
      return time < nextEndIn(params) ? limit + restNumber(state, params) : limit + carriedMax
    },
    consume: ({ count, prevCount, tokens, windowStart }, _now, amount, _params, reserved) => {
      const next = countNumberAfter(count, amount)
      const nextReserved = Math.min(countNumberAfter(prevCount, reserved), next)
      return { count: next, prevCount: nextReserved, windowStart, tokens: Math.min(tokens, 0) }
    },
    capacity: capacityNumber,
    wholeAt: endNumberOf,
    most: ({ tokens }, { limit, carriedMax }) => (tokens === NEW ? limit : limit + carriedMax),
    next: (state, { periodStart, previousStart, ...params }) => {
      const { windowStart } = state
      const isIdle = windowStart < previousStart && !isNearNumber(windowStart, previousStart, params.driftMs)
      const carried = isIdle ? params.carriedMax : restNumber(state, params)
      return { count: 0, prevCount: 0, tokens: 0 - carried, windowStart: periodStart }
    },
  },
}

/** The `tokens` of a key without a row. */
const NEW = Number.POSITIVE_INFINITY

/** The limit and what was carried over to it. */
function carriedCapacity(
  { tokens }: Pick<Expressions<'tokens'>, 'tokens'>,
  params: Expressions<Param>,
): SQL<number> {
  const { limit, carriedMax } = params
  return sql`(${limit} + case when ${tokens} < 0::float8 then least(0::float8 - ${tokens}, ${carriedMax}) else 0::float8 end)`
}

function capacityNumber(
  { tokens }: Numbers<'tokens'>,
  { limit, carriedMax }: Numbers<'limit' | 'carriedMax'>,
): number {
  return limit + (tokens < 0 ? Math.min(0 - tokens, carriedMax) : 0)
}

/** How much of a period is carried over to the next. A debt is not. */
function carriedRest(state: Expressions<'count' | 'tokens'>, params: Expressions<Param>): SQL<number> {
  return sql`least(greatest(${carriedCapacity(state, params)} - ${state.count}, 0::float8), ${params.carriedMax})`
}

function restNumber(state: Numbers<'count' | 'tokens'>, params: Numbers<'limit' | 'carriedMax'>): number {
  return Math.min(Math.max(capacityNumber(state, params) - state.count, 0), params.carriedMax)
}

/** @throws RatelimitError `INVALID_OPTION` */
export function carriedMaxOf(rollover: Rollover, tokens: number): number {
  checkOptions(rollover, { max: true }, 'rollover')
  const { max } = rollover
  checkOption(
    Number.isSafeInteger(max) && max >= 1 && max <= tokens && Number.isSafeInteger(tokens + max),
    'rollover needs a max that is a whole number from 1 to the tokens of a period, which must have a limit.',
  )
  return max
}
