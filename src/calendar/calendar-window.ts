import type { Limiter, StoredLimiter } from '../kernel/limits/algorithm.ts'
import { limiterOf } from '../kernel/limits/limiter.ts'
import { checkTokens } from '../kernel/limits/window.ts'
import { calendarAlgorithm } from './calendar-algorithm.ts'
import { type CalendarOptions, type CalendarPeriod, periodsOf } from './periods.ts'
import { carriedMaxOf, rolloverAlgorithm } from './rollover-algorithm.ts'

/**
 * The hours of the longest period of each kind. How far ahead a row may be must not depend on the guessed
 * period.
 */
const MAX_HOURS = { minute: 1 / 60, hour: 1, day: 25, week: 169, month: 745, year: 8785 }
const HOUR_MS = 3_600_000

/**
 * `tokens` in each period of the calendar, from a minute to a year, or in each `every` of them, such as the
 * three months of a quarter. The periods are those of a time zone, or counted from an anchor, such as a
 * subscription's start.
 *
 * A month from the 31st begins on the last day of a shorter month, and on the 31st again after it. A local time
 * that does not exist moves forward. If a local time exists twice, the first one is used. Weeks begin on
 * Monday. An hour that clocks show twice is two hours. If clocks change by a part of a period of hours or
 * minutes, one period ends at the change, and the next begins.
 *
 * `tokens: Infinity` counts and never denies.
 *
 * With `rollover`, `limit` in answers is the sum of `tokens` and what was carried over, and rows never expire.
 *
 * @throws RatelimitError `INVALID_LIMIT`; `INVALID_OPTION` for an unknown period or time zone, for too many
 * periods, for an anchor that is not a date or lies more than a hundred years away, and for a `max` of
 * `rollover` that is not a whole number from 1 to `tokens`.
 *
 * @example
 * ```ts
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
 *
 * const anchor = new Date('2026-01-31T09:15:00Z')
 * calendarWindow(10_000, 'month') // from the 1st, UTC
 * calendarWindow(30_000, 'month', { every: 3 }) // quarters
 * calendarWindow(10_000, 'month', { timeZone: 'Europe/Berlin', anchor })
 * calendarWindow(10_000, 'month', { rollover: { max: 5000 } })
 * ```
 */
export function calendarWindow(
  tokens: number,
  period: CalendarPeriod,
  options: CalendarOptions = {},
): Limiter {
  return windowOf(tokens, period, options)
}

function windowOf(tokens: number, period: CalendarPeriod, options: CalendarOptions): StoredLimiter {
  checkTokens(tokens)
  const { periodAt, name } = periodsOf(period, options)
  const { every = 1, rollover } = options
  // No start of another process is taken for one of hours: a change of the clocks can cut those into pieces
  // that are as near to each other.
  const driftMs = period === 'hour' || period === 'minute' ? 0 : HOUR_MS
  const own = { limit: tokens, periodMs: MAX_HOURS[period] * every * HOUR_MS, driftMs }
  const withTokens = (other: number) => windowOf(other, period, resizedOptions(options, other))
  const calendar = { periodAt, name, withTokens }
  return rollover === undefined
    ? limiterOf(calendarAlgorithm, own, calendar)
    : limiterOf(rolloverAlgorithm, { ...own, carriedMax: carriedMaxOf(rollover, tokens) }, calendar)
}

function resizedOptions(options: CalendarOptions, tokens: number): CalendarOptions {
  const { rollover, ...periods } = options
  if (!rollover || tokens === 0) return periods
  return { ...periods, rollover: { max: Math.min(rollover.max, tokens) } }
}
