import { sql } from 'drizzle-orm'
import type { Duration } from '../duration.ts'
import type { Algorithm, Limiter } from './algorithm.ts'
import { firstAt } from './first-at.ts'
import { countAfter, windowParams, within } from './window-params.ts'

/**
 * Two neighbouring fixed windows; the previous one's count fades linearly while the current one runs.
 *
 * used = count + ceil(prevCount * timeLeft / periodMs), timeLeft being what the previous window still counts for. Counts are
 * whole, so rounding up takes nothing away from anyone, and needs no tolerance. The approximation is the one Cloudflare
 * described in "How we built rate limiting capable of scaling to millions of domains" (2017).
 */
export const slidingWindow: Algorithm<'count' | 'prevCount' | 'windowStart', never> = {
  name: 'slidingWindow',
  columns: ['count', 'prevCount', 'windowStart'],
  writtenAt: 'windowStart',
  params: [],
  whole: true,
  tolerance: 0,

  holds: ({ windowStart }, now, { periodMs }) => sql`${now} < ${windowStart} + 2 * ${periodMs}`,
  settle: ({ count, prevCount, windowStart }, now, { periodMs }) => {
    const passed = sql`${now} >= ${windowStart} + ${periodMs}`
    return {
      count: sql`case when ${passed} then 0 else ${count} end`,
      prevCount: sql`case when ${passed} then ${count} else ${prevCount} end`,
      windowStart: sql`case when ${passed} then ${windowStart} + ${periodMs} else ${windowStart} end`,
    }
  },
  fresh: (now) => ({ count: sql`0`, prevCount: sql`0`, windowStart: now }),
  freshIsWhole: () => sql`true`,
  available: ({ count, prevCount, windowStart }, now, { limit, periodMs }) =>
    sql`${limit} - least(${count}, ${limit})
      - ceil(least(${prevCount}, ${limit}) * (${windowStart} + ${periodMs} - ${now}) / ${periodMs})`,
  used: ({ count, prevCount, windowStart }, now, { periodMs }) =>
    sql`${count} + ceil(${prevCount} * (${windowStart} + ${periodMs} - ${now}) / ${periodMs})`,
  // A refund that the current window did not pay comes out of what is left of the previous one.
  consume: ({ count, prevCount, windowStart }, _now, amount) => ({
    count: countAfter(count, amount),
    prevCount: sql`greatest(${prevCount} + least(${count} + ${amount}, 0), 0)`,
    windowStart,
  }),
  expiresAt: ({ windowStart }, { periodMs }) => sql`${windowStart} + 2 * ${periodMs}`,

  availableAt: ({ count, prevCount, windowStart }, now, undone, { limit, periodMs }) =>
    limit -
    within(count - undone, limit) -
    Math.ceil((Math.min(prevCount, limit) * (windowStart + periodMs - now)) / periodMs),
  usedAt: ({ count, prevCount, windowStart }, now, { periodMs }) =>
    count + Math.ceil((prevCount * (windowStart + periodMs - now)) / periodMs),
  fitsAt: (state, now, rate, { limit, periodMs }) => {
    if (rate > limit) return Number.POSITIVE_INFINITY
    const windowEnd = state.windowStart + periodMs
    const count = Math.min(state.count, limit)
    const room = limit - count - rate
    // While this window runs only the previous count fades; after it this count does, as the previous one.
    return room >= 0
      ? Math.max(now, fadesTo(room, Math.min(state.prevCount, limit), windowEnd, periodMs))
      : fadesTo(limit - rate, count, windowEnd + periodMs, periodMs)
  },
  wholeAt: ({ count, prevCount, windowStart }, now, undone, { periodMs }) => {
    if (count - undone > 0) return windowStart + 2 * periodMs
    return prevCount > 0 ? windowStart + periodMs : now
  },
}

/** The first millisecond at which `count`, fading to nothing at `endMs`, is `room` or less: the formula of `available`. */
function fadesTo(room: number, count: number, endMs: number, periodMs: number): number {
  const fits = (time: number) => Math.ceil((count * (endMs - time)) / periodMs) <= room
  return firstAt(endMs - Math.floor((room * periodMs) / count), 1, fits)
}

/** @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION` */
export function slidingWindowLimiter(tokens: number, window: Duration): Limiter {
  return { algorithm: slidingWindow, params: windowParams(tokens, window) }
}
