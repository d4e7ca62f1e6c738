import { sql } from 'drizzle-orm'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import type {
  Algorithm,
  Expression,
  Expressions,
  Limiter,
  Numbers,
  StoredLimiter,
} from '../kernel/limits/algorithm.ts'
import { limiterOf, MAX_COUNT } from '../kernel/limits/limiter.ts'
import { type ColumnOf, ROWS } from '../kernel/limits/rows.ts'
import { checkTokens, countAfter, countNumberAfter } from '../kernel/limits/window.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { withActs } from '../shared/shown.ts'

type Column = ColumnOf<'lockout'>
type Param = 'blockMs' | 'factor' | 'maxMs' | 'forgiveMs'
type ParamName = Param | 'limit' | 'periodMs'

/** The count of a key that was blocked by hand: more than calls can make it. A double represents it exactly. */
const BLOCKED_COUNT: number = MAX_COUNT + 1
const BLOCKED_SQL: Expression = /* @__PURE__ */ sql.raw(`${BLOCKED_COUNT}::float8`) as Expression

/**
 * A window that counts failures. The one that reaches the limit starts a block: the window then ends with it.
 *
 * `lastRefill` is the end of the last block, and `prevCount` its length in milliseconds: 0 if there was none or
 * it is forgiven. The next block is `factor` times as long. A window without a block began at that end or
 * later. A block of twice the longest was not written by this limiter, and does not count.
 *
 * A refund below the limit ends the block. If the window would be over without the block, the next window
 * begins. A block by hand has a count of its own, and no refund ends it. Under a larger limit, a block that
 * failures have started denies nothing.
 */
const algorithm: Algorithm<Column, Param> = {
  name: 'lockout',
  kind: 'window',
  ...ROWS.lockout,
  params: ['blockMs', 'factor', 'maxMs', 'forgiveMs'],
  integersOnly: true,
  tolerance: 0,
  // The block would start when the limit is reached by units that are not used yet.
  seesEachCall: true,

  sql: {
    holds: ({ windowStart, lastRefill }, clock, { periodMs, maxMs }) =>
      sql`${windowStart} - ${clock} <= ${periodMs} and ${lastRefill} - ${clock} <= 2::float8 * ${maxMs}
        and ${windowStart} > '-1e14'::float8 and ${lastRefill} > '-1e14'::float8`,
    advance: (row, clock, params) => {
      const isOver = sql`${clock} >= ${windowEnd(row, params)}`
      const isForgiven = sql`${clock} >= ${row.lastRefill} + ${params.forgiveMs}`
      const isByHand = sql`${row.count} >= ${BLOCKED_SQL} and ${row.lastRefill} > ${row.windowStart}`
      return {
        count: sql`case when ${isOver} then 0::float8 when ${isByHand} then ${BLOCKED_SQL} else ${countAfter(row.count, sql`0::float8`)} end`,
        prevCount: sql`case when ${isForgiven} then 0::float8 else least(${row.prevCount}, ${params.maxMs}) end`,
        windowStart: sql`case when ${isOver} then ${clock} else ${row.windowStart} end`,
        lastRefill: row.lastRefill,
      }
    },
    fresh: (now) => ({ count: sql`0::float8`, prevCount: sql`0::float8`, windowStart: now, lastRefill: now }),
    available: ({ count }, _now, { limit }) => sql`${limit} - ${count}`,
    used: ({ count }) => count,
    consume: (state, now, _available, amount, params) => {
      const { count, prevCount, windowStart, lastRefill } = state
      const { limit, blockMs, factor, maxMs, periodMs } = params
      const counted = sql<number>`case when ${amount} < 0::float8 and ${count} >= ${BLOCKED_SQL} then ${count} else ${countAfter(count, amount)} end`
      const starts = sql`${amount} > 0::float8 and ${counted} >= ${limit}`
      const lifts = sql`${amount} < 0::float8 and ${count} >= ${limit} and ${counted} < ${limit}`
      const begins = sql`${lifts} and ${now} >= ${windowStart} + ${periodMs}`
      const start = sql<number>`case when ${begins} then ${now} else ${windowStart} end`
      const nextMs = sql`least(greatest(ceil(${prevCount} * ${factor}), ${blockMs}), ${maxMs})`
      const lastMs = lastOf(prevCount, params)
      return {
        count: sql`case when ${begins} then 0::float8 else ${counted} end`,
        prevCount: sql`case when ${starts} then ${nextMs} when ${lifts} then ${lastMs} else ${prevCount} end`,
        windowStart: start,
        lastRefill: sql`case when ${starts} then ${now} + ${nextMs} when ${lifts} then ${start} else ${lastRefill} end`,
      }
    },
    block: ({ prevCount }, now, lengthMs) => ({
      count: BLOCKED_SQL,
      prevCount,
      windowStart: now,
      lastRefill: sql`${now} + ${lengthMs}`,
    }),
    blockedUntil: ({ count, windowStart, lastRefill }, { limit }) =>
      sql`case when ${lastRefill} > ${windowStart} and ${count} >= ${limit} then ${lastRefill} end`,
    // The window in which the last block began is over, and its refund would have ended that block.
    late: {
      changes: ({ count, prevCount, windowStart, lastRefill }, paid, { periodMs }) =>
        sql`${prevCount} > 0::float8 and ${count} < ${BLOCKED_SQL} and ${windowStart} <> ${paid}
          and ${lastRefill} - ${prevCount} >= ${paid} and ${lastRefill} - ${prevCount} < ${paid} + ${periodMs}`,
      forget: (state, paid, params) => ({
        ...state,
        prevCount: lastOf(state.prevCount, params),
        lastRefill: paid,
      }),
    },
    expiresAt: (state, params) =>
      sql`greatest(${windowEnd(state, params)}, case when ${state.prevCount} > 0::float8 then ${state.lastRefill} + ${params.forgiveMs} end)`,
    wholeAt: windowEnd,
  },
  numbers: {
    fresh: (now) => ({ count: 0, prevCount: 0, windowStart: now, lastRefill: now }),
    available: (state, time, params) =>
      time < endNumberOf(state, params) ? params.limit - state.count : params.limit,
    used: ({ count }) => count,
    consume: (state, now, amount, { limit, blockMs, factor, maxMs, periodMs }) => {
      const { count, prevCount, windowStart, lastRefill } = state
      const counted = amount < 0 && count >= BLOCKED_COUNT ? count : countNumberAfter(count, amount)
      if (amount > 0 && counted >= limit) {
        const nextMs = Math.min(Math.max(Math.ceil(prevCount * factor), blockMs), maxMs)
        return { count: counted, prevCount: nextMs, windowStart, lastRefill: now + nextMs }
      }
      if (amount < 0 && count >= limit && counted < limit) {
        const lastMs = prevCount <= blockMs ? 0 : Math.floor(prevCount / factor)
        const begins = now >= windowStart + periodMs
        const start = begins ? now : windowStart
        return { count: begins ? 0 : counted, prevCount: lastMs, windowStart: start, lastRefill: start }
      }
      return { count: counted, prevCount, windowStart, lastRefill }
    },
    block: ({ prevCount }, now, lengthMs) => ({
      count: BLOCKED_COUNT,
      prevCount,
      windowStart: now,
      lastRefill: now + lengthMs,
    }),
    blockedUntil: ({ count, windowStart, lastRefill }, { limit }) =>
      lastRefill > windowStart && count >= limit ? lastRefill : undefined,
    guess: (state, _wanted, _now, params) => endNumberOf(state, params),
  },
}

/** How long the block was before one of this length. */
function lastOf(lengthMs: Expression, { blockMs, factor }: Expressions<ParamName>): Expression {
  return sql`case when ${lengthMs} <= ${blockMs} then 0::float8 else floor(${lengthMs} / ${factor}) end`
}

/** When the window of a row is over: with its block, if it has one. */
function windowEnd(
  { windowStart, lastRefill }: Expressions<Column>,
  { periodMs }: Expressions<ParamName>,
): Expression {
  return sql`case when ${lastRefill} > ${windowStart} then ${lastRefill} else ${windowStart} + ${periodMs} end`
}

function endNumberOf({ windowStart, lastRefill }: Numbers<Column>, { periodMs }: Numbers<ParamName>): number {
  return lastRefill > windowStart ? lastRefill : windowStart + periodMs
}

/** A day. */
const DAY_MS = 86_400_000

/** Options of `lockout`. */
export interface LockoutOptions {
  /** How long the first block lasts. */
  readonly block: Duration
  /** The length of each further block as a multiple of the last one, from 1 to 1,000. Default: `1`. */
  readonly factor?: number
  /** The longest block. Default: a day, or `block` if that is longer. */
  readonly max?: Duration
  /** How long after its last block a key's next block is as short as the first again. Default: `'1d'`. */
  readonly forgive?: Duration
}

const LOCKOUT_NAMES: NamesOf<LockoutOptions> = { block: true, factor: true, max: true, forgive: true }

/**
 * Blocks a key after `failures` within a `window`, with a `factor` above 1 for longer each time. Take 1 for
 * each failure. The call that reaches the limit is allowed and starts the block, whose end is `blockedUntil` in
 * its answer. Until that end, calls are denied with the same `blockedUntil`, and write nothing. A refund of the
 * call that started the block ends it.
 *
 * @param failures A whole number from 0 to 2^53 - 1, or `Infinity`.
 * @param window Milliseconds, or a string like `'15m'`.
 * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`; `INVALID_OPTION` for a `factor` outside of 1 to
 * 1,000, and for a `max` that is shorter than `block`.
 *
 * @example
 * ```ts
 * import { lockout } from 'drizzle-ratelimit/lockout'
 *
 * lockout(5, '15m', { block: '1m' }) // five failures in 15 minutes block for one minute
 * lockout(5, '15m', { block: '1m', factor: 2, max: '7d' }) // then for two, four, ... minutes
 * ```
 */
export function lockout(failures: number, window: Duration, options: LockoutOptions): Limiter {
  return lockoutOf(failures, window, options)
}

/** The same, for rows of our own. */
export function lockoutOf(failures: number, window: Duration, options: LockoutOptions): StoredLimiter {
  checkTokens(failures, 'failures')
  checkOptions(options, LOCKOUT_NAMES)
  const { block, factor = 1, max, forgive = DAY_MS } = options
  const periodMs = parseDuration(window, 'The window')
  const blockMs = parseDuration(block, 'block')
  const maxMs = max === undefined ? Math.max(blockMs, DAY_MS) : parseDuration(max, 'max')
  const forgiveMs = parseDuration(forgive, 'forgive')
  const isFactor = Number.isFinite(factor) && factor >= 1 && factor <= MAX_FACTOR
  checkOption(isFactor, `factor must be a number from 1 to ${MAX_FACTOR}.`)
  checkOption(maxMs >= blockMs, 'max must not be shorter than block.')
  const limiter = limiterOf(algorithm, { limit: failures, periodMs, blockMs, factor, maxMs, forgiveMs })
  return withActs(limiter, async (...keys) => (await import('./acts.ts')).actsOf(...keys))
}

/** More would mean a fixed `max`. */
const MAX_FACTOR = 1000
