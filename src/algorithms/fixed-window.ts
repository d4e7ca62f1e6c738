import { sql } from 'drizzle-orm'
import type { Duration } from '../duration.ts'
import type { Algorithm, Limiter } from './algorithm.ts'
import { countAfter, windowParams, within } from './window-params.ts'

/** Opens with the first call and is over, half open, `periodMs` later. */
export const fixedWindow: Algorithm<'count' | 'windowStart', never> = {
  name: 'fixedWindow',
  columns: ['count', 'windowStart'],
  writtenAt: 'windowStart',
  params: [],
  whole: true,
  tolerance: 0,

  holds: ({ windowStart }, now, { periodMs }) => sql`${now} < ${windowStart} + ${periodMs}`,
  settle: (state) => state,
  fresh: (now) => ({ count: sql`0`, windowStart: now }),
  freshIsWhole: () => sql`true`,
  available: ({ count }, _now, { limit }) => sql`${limit} - least(${count}, ${limit})`,
  used: ({ count }) => count,
  consume: ({ count, windowStart }, _now, amount) => ({ count: countAfter(count, amount), windowStart }),
  expiresAt: ({ windowStart }, { periodMs }) => sql`${windowStart} + ${periodMs}`,

  availableAt: ({ count }, _now, undone, { limit }) => limit - within(count - undone, limit),
  usedAt: ({ count }) => count,
  fitsAt: ({ windowStart }, _now, rate, { limit, periodMs }) =>
    rate > limit ? Number.POSITIVE_INFINITY : windowStart + periodMs,
  wholeAt: ({ count, windowStart }, now, undone, { periodMs }) =>
    count - undone > 0 ? windowStart + periodMs : now,
}

/** @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION` */
export function fixedWindowLimiter(tokens: number, window: Duration): Limiter {
  return { algorithm: fixedWindow, params: windowParams(tokens, window) }
}
