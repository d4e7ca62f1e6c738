import { sql } from 'drizzle-orm'
import { type Duration, parseDuration } from '../duration.ts'
import type { Algorithm, Limiter } from './algorithm.ts'
import { limiterOf } from './limiter.ts'
import { checkTokens, countAfter, countNumberAfter } from './window.ts'

/** Opens with the first call and ends `periodMs` later. At its end it is over. */
export const fixedWindow: Algorithm<'count' | 'windowStart', never> = {
  name: 'fixedWindow',
  kind: 'window',
  columns: ['count', 'windowStart'],
  emptyColumns: ['prevCount', 'tokens'],
  datedBy: 'windowStart',
  params: [],
  integersOnly: true,
  tolerance: 0,
  startsFull: true,

  sql: {
    holds: ({ count, windowStart }, clock, { periodMs }) =>
      sql`${windowStart} - ${clock} <= ${periodMs} and ${clock} < ${windowStart} + ${periodMs} and ${count} >= 0`,
    settle: (row) => row,
    fresh: (now) => ({ count: sql`0`, windowStart: now }),
    available: ({ count }, _now, { limit }) => sql`${limit} - ${count}`,
    used: ({ count }) => count,
    consume: ({ count, windowStart }, _now, _available, amount) => ({
      count: countAfter(count, amount),
      windowStart,
    }),
    expiresAt: ({ windowStart }, { periodMs }) => sql`${windowStart} + ${periodMs}`,
  },
  numbers: {
    available: ({ count, windowStart }, time, { limit, periodMs }) =>
      time < windowStart + periodMs ? limit - count : limit,
    used: ({ count }) => count,
    consume: ({ count, windowStart }, _now, amount) => ({
      count: countNumberAfter(count, amount),
      windowStart,
    }),
    guess: ({ windowStart }, _wanted, _now, { periodMs }) => windowStart + periodMs,
  },
}

/** @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION` */
export function fixedWindowLimiter(tokens: number, window: Duration): Limiter {
  checkTokens(tokens)
  return limiterOf(fixedWindow, { limit: tokens, periodMs: parseDuration(window, 'The window') })
}
