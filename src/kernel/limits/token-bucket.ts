import { sql } from 'drizzle-orm'
import { checkOptions, type NamesOf } from '../base/check-options.ts'
import { type Duration, parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import type { Algorithm, Expression, Expressions, Limiter, Numbers } from './algorithm.ts'
import { checkAmounts, fillingMs, isPlausible, promising, TOLERANCE, TOLERANCE_SQL } from './bucket.ts'
import { limiterOf } from './limiter.ts'
import { type ColumnOf, ROWS } from './rows.ts'

type Column = ColumnOf<'tokenBucket'>
type Param = 'refillRate' | 'intervalMs' | 'tickMs' | 'initialTokens'
type ParamName = Param | 'limit' | 'periodMs'

/**
 * The state changes only when something is taken. Refills are counted from the last refill, so no time is lost.
 */
const plain: Algorithm<Column, Param> = {
  name: 'tokenBucket',
  kind: 'bucket',
  ...ROWS.tokenBucket,
  params: ['refillRate', 'intervalMs', 'tickMs', 'initialTokens'],
  integersOnly: false,
  tolerance: TOLERANCE,

  sql: {
    holds: ({ tokens, lastRefill }, clock, { periodMs }) => isPlausible(tokens, lastRefill, clock, periodMs),
    fresh: (now, { initialTokens }) => ({ tokens: initialTokens, lastRefill: now }),
    available,
    used: (state, now, params) => sql`${params.limit} - ${available(state, now, params)}`,
    consume: (state, now, left, amount, params) => ({
      tokens: sql`least(${left} - ${amount}, ${params.limit})`,
      lastRefill: sql`${state.lastRefill} + ${refilledMs(state, now, params)}`,
    }),
    expiresAt: (state, params) => whenAvailable(state, params.limit, params),
    starts: {
      whenAvailable,
      refill: ({ refillRate, intervalMs, tickMs }) => sql`${tickMs} * ${refillRate} / ${intervalMs}`,
    },
  },
  numbers: {
    fresh: (now, { initialTokens }) => ({ tokens: initialTokens, lastRefill: now }),
    available: availableNumber,
    used: (state, now, params) => params.limit - availableNumber(state, now, params),
    consume: (state, now, amount, params) => ({
      tokens: Math.min(availableNumber(state, now, params) - amount, params.limit),
      lastRefill: state.lastRefill + refilledNumberMs(state, now, params),
    }),
    guess: ({ tokens, lastRefill }, wanted, _now, { refillRate, intervalMs, tickMs }) => {
      const missingMs = ((wanted - tokens - TOLERANCE) * intervalMs) / refillRate
      return lastRefill + Math.ceil(missingMs / tickMs) * tickMs
    },
  },
}

const algorithm: Algorithm<Column, Param> = { ...plain, promising: promising(plain) }

function whenAvailable(
  { tokens, lastRefill }: Expressions<Column>,
  wanted: Expression,
  { refillRate, intervalMs, tickMs }: Expressions<ParamName>,
): Expression {
  return sql`${lastRefill} + ceil((${wanted} - ${tokens} - ${TOLERANCE_SQL}) * ${intervalMs} / ${refillRate} / ${tickMs}) * ${tickMs}`
}

function available(state: Expressions<Column>, now: Expression, params: Expressions<ParamName>): Expression {
  const { refillRate, intervalMs, limit } = params
  return sql`least(${state.tokens} + ${refilledMs(state, now, params)} * ${refillRate} / ${intervalMs}, ${limit})`
}

function availableNumber(state: Numbers<Column>, time: number, params: Numbers<ParamName>): number {
  const { refillRate, intervalMs, limit } = params
  return Math.min(state.tokens + (refilledNumberMs(state, time, params) * refillRate) / intervalMs, limit)
}

/** The milliseconds since the last refill, in whole ticks. */
function refilledMs(
  { lastRefill }: Expressions<Column>,
  now: Expression,
  { tickMs }: Expressions<ParamName>,
): Expression {
  return sql`floor((${now} - ${lastRefill}) / ${tickMs}) * ${tickMs}`
}

function refilledNumberMs(
  { lastRefill }: Numbers<Column>,
  now: number,
  { tickMs }: Numbers<ParamName>,
): number {
  return Math.floor((now - lastRefill) / tickMs) * tickMs
}

/** Options of `Ratelimit.tokenBucket`. */
export interface TokenBucketOptions {
  /** `'interval'` refills at the end of each interval, `'continuous'` steadily. Default: `'interval'`. */
  readonly refill?: 'interval' | 'continuous'
  /** Tokens in a new bucket. Default: `maxTokens`. */
  readonly initialTokens?: number
}

const BUCKET_NAMES: NamesOf<TokenBucketOptions> = { refill: true, initialTokens: true }

/**
 * A bucket of `maxTokens` that gets `refillRate` tokens every `interval`.
 *
 * @param refillRate From 0.000001 to 2^53 - 1, like `maxTokens`. Fractions are allowed.
 * @param interval Milliseconds, or a string like `'10s'`.
 * @throws RatelimitError `INVALID_LIMIT`, also if an empty bucket needs more than a hundred years to fill, or
 * for `initialTokens` above `maxTokens`; `INVALID_DURATION`; `INVALID_OPTION` for another `refill`.
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 *
 * Ratelimit.tokenBucket(5, '10s', 20) // 5 more every ten seconds, bursts of 20
 * Ratelimit.tokenBucket(10, '1s', 100, { refill: 'continuous' }) // one every 100 ms
 * ```
 */
export function tokenBucket(
  refillRate: number,
  interval: Duration,
  maxTokens: number,
  options: TokenBucketOptions = {},
): Limiter {
  checkOptions(options, BUCKET_NAMES)
  const { refill = 'interval', initialTokens = maxTokens } = options
  const intervalMs = parseDuration(interval, 'The interval')
  if (refill !== 'interval' && refill !== 'continuous') {
    throw new RatelimitError('INVALID_OPTION', "refill must be 'interval' or 'continuous'.")
  }
  const tickMs = refill === 'interval' ? intervalMs : 1
  checkAmounts({ refillRate, maxTokens })
  if (initialTokens !== 0) checkAmounts({ initialTokens })
  if (initialTokens > maxTokens) {
    throw new RatelimitError('INVALID_LIMIT', 'initialTokens must be at most maxTokens.')
  }
  const ticks = Math.ceil(((maxTokens - TOLERANCE) * intervalMs) / refillRate / tickMs)
  const periodMs = fillingMs(ticks * tickMs)
  return limiterOf(algorithm, { limit: maxTokens, periodMs, refillRate, intervalMs, tickMs, initialTokens })
}
