import { sql } from 'drizzle-orm'
import ms from 'ms'
import { type CalendarOptions, type CalendarPeriod, periodsOf } from '../calendar.ts'
import type { Algorithm, Limiter } from './algorithm.ts'
import { checkTokens, countAfter, within } from './window-params.ts'

/**
 * The calendar period that holds now. Which that is the statement cannot know: it is sent the period of a guess, and decides nothing
 * when the database's time lies outside.
 *
 * `tokens` is the most that was used in the period. It stays when something is given back, so that a threshold is crossed once a
 * period; and it tells the row from a fixed window's, whose start means something else.
 */
export const calendarWindow: Algorithm<'count' | 'windowStart' | 'tokens', 'periodStart' | 'periodEnd'> = {
  name: 'calendarWindow',
  columns: ['count', 'windowStart', 'tokens'],
  writtenAt: 'windowStart',
  params: ['periodStart', 'periodEnd'],
  whole: true,
  tolerance: 0,

  applies: (now, { periodStart, periodEnd }) => sql`${now} >= ${periodStart} and ${now} < ${periodEnd}`,
  // What was counted from a time in this period on was used in it, though its own period may have been another.
  holds: ({ windowStart }, _now, { periodStart, periodEnd }) =>
    sql`${windowStart} >= ${periodStart} and ${windowStart} < ${periodEnd}`,
  // A call of another plan leaves the start as it is, so that a shorter period finds its own again.
  settle: (state) => state,
  fresh: (_now, { periodStart }) => ({ count: sql`0`, tokens: sql`0`, windowStart: periodStart }),
  freshIsWhole: () => sql`true`,
  available: ({ count }, _now, { limit }) => sql`${limit} - least(${count}, ${limit})`,
  used: ({ count }) => count,
  peak: ({ tokens }) => tokens,
  consume: ({ count, tokens, windowStart }, _now, amount) => ({
    count: countAfter(count, amount),
    tokens: sql`greatest(${tokens}, ${countAfter(count, amount)})`,
    windowStart,
  }),
  expiresAt: (_state, { periodEnd }) => periodEnd,

  availableAt: ({ count }, _now, undone, { limit }) => limit - within(count - undone, limit),
  usedAt: ({ count }) => count,
  fitsAt: (_state, _now, rate, { limit, periodEnd }) => (rate > limit ? Number.POSITIVE_INFINITY : periodEnd),
  wholeAt: ({ count }, now, undone, { periodEnd }) => (count - undone > 0 ? periodEnd : now),
}

/** @throws RatelimitError `INVALID_LIMIT`, `INVALID_OPTION` */
export function calendarWindowLimiter(
  tokens: number,
  period: CalendarPeriod,
  options: CalendarOptions = {},
): Limiter {
  checkTokens(tokens)
  const periodAt = periodsOf(period, options)
  // The longest that there is: what is further ahead than a period must not depend on which one is guessed.
  const periodMs = ms(LONGEST[period])
  return { algorithm: calendarWindow, params: { limit: tokens, periodMs }, periodAt }
}

const LONGEST = { day: '25h', week: '169h', month: '745h', year: '8785h' } as const
