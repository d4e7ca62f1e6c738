import { sql } from 'drizzle-orm'
import { type Duration, parseDuration } from '../duration.ts'
import type { Algorithm, Expression, Limiter } from './algorithm.ts'
import { limiterOf } from './limiter.ts'
import { type ColumnOf, ROWS } from './rows.ts'
import { checkTokens, countAfter, countNumberAfter, expiresWith } from './window.ts'

type Column = ColumnOf<'slidingWindow'>

/** The part of a count that still counts for `leftMs` of `periodMs`: `ceil(count * leftMs / periodMs)`. */
interface Fading {
  readonly sql: (count: Expression, leftMs: Expression, periodMs: Expression) => Expression
  readonly number: (count: number, leftMs: number, periodMs: number) => number
}

/** Exact while count times milliseconds is a whole number that a double can hold. */
const inDoubles: Fading = {
  sql: (count, leftMs, periodMs) => sql`ceil(${count} * (${leftMs}) / ${periodMs})`,
  number: (count, leftMs, periodMs) => Math.ceil((count * leftMs) / periodMs),
}

/**
 * Exact for every limit and window. It goes through bigint, because the cast from a double to numeric keeps
 * only 15 digits.
 */
const inWholeNumbers: Fading = {
  sql: (count, leftMs, periodMs) =>
    sql`div((${count})::bigint::numeric * (${leftMs})::bigint::numeric + ${periodMs}::bigint::numeric - 1::numeric,
      ${periodMs}::bigint::numeric)::float8`,
  number: (count, leftMs, periodMs) => {
    const period = BigInt(periodMs)
    return Number((BigInt(count) * BigInt(leftMs) + period - 1n) / period)
  },
}

/** For limits and lengths whose product a double can hold. */
const ordinary: Algorithm<Column, never> = algorithm('slidingWindow', inDoubles)

const large: Algorithm<Column, never> = algorithm('largeSlidingWindow', inWholeNumbers)

/**
 * Two neighbouring fixed windows. The count of the previous one fades linearly while the current one runs.
 *
 * used = count + ceil(prevCount * timeLeft / periodMs), where timeLeft is how long the previous window still
 * counts. Rates are whole numbers, so rounding up denies no call that an exact result would allow, and needs no
 * tolerance. Cloudflare described this approximation in "How we built rate limiting capable of scaling to
 * millions of domains" (2017).
 */
function algorithm(name: string, fading: Fading): Algorithm<Column, never> {
  return {
    name,
    kind: 'window',
    ...ROWS.slidingWindow,
    params: [],
    integersOnly: true,
    tolerance: 0,

    sql: {
      holds: ({ windowStart }, clock, { periodMs }) =>
        sql`${windowStart} - ${clock} <= ${periodMs} and ${clock} < ${windowStart} + 2::float8 * ${periodMs}`,
      advance: ({ count, prevCount, windowStart }, clock, { periodMs }) => {
        const ended = sql`${clock} >= ${windowStart} + ${periodMs}`
        return {
          count: sql`case when ${ended} then 0 else ${count} end`,
          prevCount: sql`case when ${ended} then ${count} else ${prevCount} end`,
          windowStart: sql`case when ${ended} then ${windowStart} + ${periodMs} else ${windowStart} end`,
        }
      },
      fresh: (now) => ({ count: sql`0::float8`, prevCount: sql`0::float8`, windowStart: now }),
      // After a change to a smaller limit, a window may have used more than the limit. It counts as full.
      available: ({ count, prevCount, windowStart }, now, { limit, periodMs }) =>
        sql`${limit} - least(${count}, ${limit})
        - ${fading.sql(sql`least(${prevCount}, ${limit})`, sql`${windowStart} + ${periodMs} - ${now}`, periodMs)}`,
      used: ({ count, prevCount, windowStart }, now, { periodMs }) =>
        sql`${count} + ${fading.sql(prevCount, sql`${windowStart} + ${periodMs} - ${now}`, periodMs)}`,
      // The part of a refund that exceeds the count of the current window lowers the previous count.
      consume: ({ count, prevCount, windowStart }, _now, _available, amount) => ({
        count: countAfter(count, amount),
        prevCount: countAfter(prevCount, sql`least(${count} + ${amount}, 0)`),
        windowStart,
      }),
      expiresAt: ({ windowStart }, { periodMs }) => sql`${windowStart} + 2::float8 * ${periodMs}`,
      isOfPeriod: ({ windowStart }, expires, { periodMs }, onGrid) =>
        expiresWith(sql`${windowStart} + 2::float8 * ${periodMs}`, expires, onGrid),
      wholeAt: ({ count, windowStart }, { periodMs }) =>
        sql`${windowStart} + case when ${count} > 0::float8 then 2::float8 else 1::float8 end * ${periodMs}`,
    },
    numbers: {
      fresh: (now) => ({ count: 0, prevCount: 0, windowStart: now }),
      available: ({ count, prevCount, windowStart }, time, { limit, periodMs }) => {
        const ends = windowStart + periodMs
        const left = (taken: number, leftMs: number) =>
          fading.number(Math.min(taken, limit), leftMs, periodMs)
        if (time < ends) return limit - Math.min(count, limit) - left(prevCount, ends - time)
        return time < ends + periodMs ? limit - left(count, ends + periodMs - time) : limit
      },
      used: ({ count, prevCount, windowStart }, now, { periodMs }) =>
        count + fading.number(prevCount, windowStart + periodMs - now, periodMs),
      consume: ({ count, prevCount, windowStart }, _now, amount) => ({
        count: countNumberAfter(count, amount),
        prevCount: countNumberAfter(prevCount, Math.min(count + amount, 0)),
        windowStart,
      }),
      guess: ({ count, prevCount, windowStart }, wanted, _now, { limit, periodMs }) => {
        const room = limit - Math.min(count, limit) - wanted
        // While this window runs, only the previous count fades. After its end, this count fades.
        const ends = windowStart + (room >= 0 ? periodMs : 2 * periodMs)
        const [left, fading] =
          room >= 0 ? [room, Math.min(prevCount, limit)] : [limit - wanted, Math.min(count, limit)]
        return ends - Math.floor((left * periodMs) / fading)
      },
    },
  }
}

/**
 * A limit of about `tokens` in any time of the length `window`: the previous window's count fades linearly
 * while the current one runs.
 *
 * @param tokens A whole number from 0 to 2^53 - 1. 0 denies every call; `Infinity` counts and never denies.
 * @param window Milliseconds, or a string like `'1m'`.
 * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 *
 * Ratelimit.slidingWindow(100, '1h') // without a jump where one window ends and the next begins
 * ```
 */
export function slidingWindow(tokens: number, window: Duration): Limiter {
  checkTokens(tokens)
  const periodMs = parseDuration(window, 'The window')
  const isLarge = tokens * periodMs > Number.MAX_SAFE_INTEGER
  return limiterOf(isLarge ? large : ordinary, { limit: tokens, periodMs })
}
