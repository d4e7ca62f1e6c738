import { type SQL, sql } from 'drizzle-orm'
import type { Algorithm, Expression, Numbers } from '../kernel/limits/algorithm.ts'
import { isNear, isNearNumber } from '../kernel/limits/limiter.ts'
import { type ColumnOf, ROWS } from '../kernel/limits/rows.ts'
import { countAfter, countNumberAfter } from '../kernel/limits/window.ts'

/**
 * The calendar period that contains now. The statement cannot work it out. It gets a guess as a parameter, and
 * decides nothing if the database's time lies outside.
 *
 * `prevCount` is the reserved part of `count`: estimates that wait for their cost. The rest is settled.
 * `tokens` is the most that was settled in the period. A refund does not lower it, so that a threshold is
 * crossed once a period. It also distinguishes the row from a fixed window's, whose start means something else.
 */
export const calendarAlgorithm: Algorithm<
  ColumnOf<'calendarWindow'>,
  'periodStart' | 'periodEnd' | 'driftMs'
> = {
  name: 'calendarWindow',
  kind: 'window',
  ...ROWS.calendarWindow,
  params: ['periodStart', 'periodEnd', 'driftMs'],
  integersOnly: true,
  tolerance: 0,
  // A plan with rollover has written other tokens: 0 or less.
  settled: { now: settledNumber, most: (state) => Math.max(settledNumber(state), state.tokens) },

  applies: (now, { periodStart, periodEnd }) => sql`${now} >= ${periodStart} and ${now} < ${periodEnd}`,
  sql: {
    // A clock that is ahead may have written a row of the next period. It must not be read as one that has
    // ended.
    now: ({ windowStart }, clock, { periodMs }) =>
      sql`case when ${windowStart} - ${clock} between 0::float8 and ${periodMs} then ${windowStart} else ${clock} end`,
    // A count that began in this period was used in this period, even if its plan had another period.
    holds: ({ windowStart }, clock, { periodMs, periodStart, periodEnd, driftMs }) =>
      sql`${windowStart} - ${clock} <= ${periodMs} and not ${isOver(windowStart, periodStart, driftMs)}
        and ${windowStart} < ${periodEnd}`,
    ended: ({ windowStart }, _clock, { periodStart, driftMs }) => isOver(windowStart, periodStart, driftMs),
    reserved: ({ prevCount }) => prevCount,
    fresh: (_now, { periodStart }) => ({
      count: sql`0::float8`,
      prevCount: sql`0::float8`,
      tokens: sql`0::float8`,
      windowStart: periodStart,
    }),
    available: ({ count }, _now, { limit }) => sql`${limit} - ${count}`,
    used: ({ count }) => count,
    // A call of another plan does not change the start, so that a shorter period finds its own row again.
    consume: ({ count, prevCount, tokens, windowStart }, _now, _available, amount, _params, reserved) => {
      const next = countAfter(count, amount)
      // A refund that exceeds the settled part lowers the reserved part.
      const nextReserved = sql<number>`least(${countAfter(prevCount, reserved)}, ${next})`
      return {
        count: next,
        prevCount: nextReserved,
        windowStart,
        tokens: sql`greatest(${tokens}, ${next} - ${nextReserved})`,
      }
    },
    // A row knows what was settled. How long its period lasts, only its plan knows.
    before: ({ windowStart }, { periodEnd }) => sql`${periodEnd} - ${windowStart}`,
    // Another process may begin the next period later: see drift.ts. A row that counts for the next period too
    // lasts for the longest one.
    expiresAt: ({ windowStart }, { periodEnd, periodMs, driftMs }) =>
      sql`${periodEnd} + ${driftMs} + case when ${isNear(windowStart, periodEnd, driftMs)} then ${periodMs} else 0::float8 end`,
    wholeAt: (_state, { periodEnd }) => periodEnd,
    // The last period ended where this one begins, and its row may still exist. If this plan has charged a row
    // that another plan began, `paid` is the start of that row.
    isOfPeriod: ({ windowStart }, expires, { periodStart, periodEnd, driftMs }, onGrid, paid) => {
      const isPaid = paid ? sql` or coalesce(${windowStart} = ${paid()}, false)` : sql``
      return sql`case when ${isOver(windowStart, periodStart, driftMs)}
          then ${expiresNear(periodStart, expires, driftMs, onGrid)}
        else (${isNear(windowStart, periodStart, driftMs)}${isPaid})
          and ${expiresNear(periodEnd, expires, driftMs, onGrid)} end`
    },
    isRecent: ({ windowStart }, { periodStart, driftMs }, previousStart) =>
      sql`(${isNear(windowStart, periodStart, driftMs)} or ${isNear(windowStart, previousStart, driftMs)})`,
  },
  numbers: {
    fresh: (_now, { periodStart }) => ({ count: 0, prevCount: 0, tokens: 0, windowStart: periodStart }),
    available: (state, time, params) =>
      time < endNumberOf(state, params) ? params.limit - state.count : params.limit,
    used: ({ count }) => count,
    consume: ({ count, prevCount, tokens, windowStart }, _now, amount, _params, reserved) => {
      const next = countNumberAfter(count, amount)
      const nextReserved = Math.min(countNumberAfter(prevCount, reserved), next)
      return {
        count: next,
        prevCount: nextReserved,
        windowStart,
        tokens: Math.max(tokens, next - nextReserved),
      }
    },
    guess: (state, _wanted, _now, params) => endNumberOf(state, params),
  },
}

/** When the count is over: a row that began shortly before the period's end counts for the next one too. */
export function endNumberOf(
  { windowStart }: Numbers<'windowStart'>,
  params: Numbers<'periodEnd' | 'driftMs'>,
): number {
  const { periodEnd, driftMs } = params
  return isNearNumber(windowStart, periodEnd, driftMs) ? nextEndIn(params) : periodEnd
}

/** The end of the next period. It is a parameter of the formulas on numbers only. */
export function nextEndIn(params: Readonly<Record<string, number>>): number {
  return params['nextEnd'] ?? Number.POSITIVE_INFINITY
}

/** Whether a period that began at `start` was over when the one at `periodStart` began. */
export function isOver(start: Expression, periodStart: Expression, driftMs: Expression): SQL<boolean> {
  return sql`(${start} < ${periodStart} and not ${isNear(start, periodStart, driftMs)})`
}

/** Whether a row expires with a period that ends about then. Older versions added no time for the drift. */
function expiresNear(
  end: Expression,
  expires: Expression,
  driftMs: Expression,
  onGrid: (time: Expression) => Expression,
): SQL<boolean> {
  return sql`${expires} between ${end} - ${driftMs} and ${onGrid(sql`${end} + 2::float8 * ${driftMs}`)}`
}

export function settledNumber({ count, prevCount }: Numbers<'count' | 'prevCount'>): number {
  return count - prevCount
}
