import { sql } from 'drizzle-orm'
import ms from 'ms'
import { type CalendarOptions, type CalendarPeriod, periodsOf } from '../calendar.ts'
import type { Algorithm, Limiter } from './algorithm.ts'
import { limiterOf } from './limiter.ts'
import { checkTokens, countAfter, countNumberAfter } from './window.ts'

/**
 * The calendar period that contains now. The statement cannot know which one that is. It is sent a guess, and
 * it decides nothing if the database's time lies outside.
 *
 * `tokens` is the most that was used in the period. It stays when something is given back, so that a
 * threshold is crossed once a period; and it tells the row from a fixed window's, whose start means something
 * else.
 */
export const calendarWindow: Algorithm<'count' | 'windowStart' | 'tokens', 'periodStart' | 'periodEnd'> = {
  name: 'calendarWindow',
  kind: 'window',
  columns: ['count', 'windowStart', 'tokens'],
  emptyColumns: [],
  datedBy: 'windowStart',
  params: ['periodStart', 'periodEnd'],
  integersOnly: true,
  tolerance: 0,
  startsFull: true,
  peak: 'tokens',

  applies: (now, { periodStart, periodEnd }) => sql`${now} >= ${periodStart} and ${now} < ${periodEnd}`,
  sql: {
    // A row of the next period, written by a clock that is ahead, must not be read as one that has ended.
    now: ({ tokens, windowStart }, clock, { periodMs }) =>
      sql`case when ${tokens} is not null and ${windowStart} - ${clock} between 0 and ${periodMs} then ${windowStart} else ${clock} end`,
    // A count that began in this period was used in this period, even if its own plan had another period.
    holds: ({ count, windowStart, tokens }, clock, { periodMs, periodStart, periodEnd }) =>
      sql`${windowStart} - ${clock} <= ${periodMs} and ${windowStart} >= ${periodStart} and ${windowStart} < ${periodEnd}
        and ${count} >= 0 and ${tokens} > '-Infinity'`,
    // A call of another plan leaves the start as it is, so that a shorter period finds its own again.
    settle: (row) => row,
    fresh: (_now, { periodStart }) => ({ count: sql`0`, tokens: sql`0`, windowStart: periodStart }),
    available: ({ count }, _now, { limit }) => sql`${limit} - ${count}`,
    used: ({ count }) => count,
    consume: ({ count, tokens, windowStart }, _now, _available, amount) => ({
      count: countAfter(count, amount),
      tokens: sql`greatest(${tokens}, ${countAfter(count, amount)})`,
      windowStart,
    }),
    expiresAt: (_state, { periodEnd }) => periodEnd,
  },
  numbers: {
    available: ({ count }, time, { limit, periodEnd }) => (time < periodEnd ? limit - count : limit),
    used: ({ count }) => count,
    consume: ({ count, tokens, windowStart }, _now, amount) => ({
      count: countNumberAfter(count, amount),
      tokens: Math.max(tokens, countNumberAfter(count, amount)),
      windowStart,
    }),
    guess: (_state, _wanted, _now, { periodEnd }) => periodEnd,
  },
}

/** @throws RatelimitError `INVALID_LIMIT`, `INVALID_OPTION` */
export function calendarWindowLimiter(
  tokens: number,
  period: CalendarPeriod,
  options: CalendarOptions = {},
): Limiter {
  checkTokens(tokens)
  const { periodAt, name } = periodsOf(period, options)
  // The longest possible: how far ahead a row may be must not depend on the guessed period.
  const periodMs = ms(LONGEST[period])
  return limiterOf(calendarWindow, { limit: tokens, periodMs }, { periodAt, name })
}

const LONGEST = { day: '25h', week: '169h', month: '745h', year: '8785h' } as const
