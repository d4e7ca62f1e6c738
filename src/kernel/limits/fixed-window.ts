import { sql } from 'drizzle-orm'
import { type Duration, parseDuration } from '../duration.ts'
import type { Algorithm, Limiter, StoredLimiter } from './algorithm.ts'
import { limiterOf } from './limiter.ts'
import { type ColumnOf, ROWS } from './rows.ts'
import { checkTokens, countAfter, countNumberAfter, expiresWith } from './window.ts'

const algorithm: Algorithm<ColumnOf<'fixedWindow'>, never> = {
  name: 'fixedWindow',
  kind: 'window',
  ...ROWS.fixedWindow,
  params: [],
  integersOnly: true,
  tolerance: 0,

  sql: {
    holds: ({ windowStart }, clock, { periodMs }) =>
      sql`${windowStart} - ${clock} <= ${periodMs} and ${clock} < ${windowStart} + ${periodMs}`,
    ended: ({ windowStart }, clock, { periodMs }) => sql`${clock} >= ${windowStart} + ${periodMs}`,
    fresh: (now) => ({ count: sql`0::float8`, windowStart: now }),
    available: ({ count }, _now, { limit }) => sql`${limit} - ${count}`,
    used: ({ count }) => count,
    consume: ({ count, windowStart }, _now, _available, amount) => ({
      count: countAfter(count, amount),
      windowStart,
    }),
    expiresAt: ({ windowStart }, { periodMs }) => sql`${windowStart} + ${periodMs}`,
    isOfPeriod: ({ windowStart }, expires, { periodMs }, onGrid) =>
      expiresWith(sql`${windowStart} + ${periodMs}`, expires, onGrid),
  },
  numbers: {
    fresh: (now) => ({ count: 0, windowStart: now }),
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

/**
 * A limit of `tokens` in each `window`. The first call opens a window, and the first call after its end opens
 * the next one.
 *
 * @param tokens A whole number from 0 to 2^53 - 1. 0 denies every call; `Infinity` counts and never denies.
 * @param window Milliseconds, or a string like `'1m'`.
 * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 *
 * Ratelimit.fixedWindow(100, '1h') // 100 in the hour that begins with the first call
 * ```
 */
export function fixedWindow(tokens: number, window: Duration): Limiter {
  return fixedWindowOf(tokens, window)
}

/** The same, for rows of our own. */
export function fixedWindowOf(tokens: number, window: Duration): StoredLimiter {
  checkTokens(tokens)
  return limiterOf(algorithm, { limit: tokens, periodMs: parseDuration(window, 'The window') })
}
