import { sql } from 'drizzle-orm'
import { type Duration, LONGEST_MS, parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import type { Algorithm, Expression, Expressions, Limiter, Numbers } from './algorithm.ts'
import { firstAt } from './first-at.ts'

/** Tokens are double precision: 0.1 taken three times leaves 0.3 a little short of nothing, and must be allowed. */
const TOLERANCE = 1e-9
/** Amounts are well above the tolerance. */
const LEAST = 1e-6
const tolerance = sql.raw(String(TOLERANCE))

/**
 * A bucket that gets `refillRate` tokens every `intervalMs`, counted each `grainMs`: the interval for whole refills, a
 * millisecond for continuous ones.
 *
 * Until something is taken the state stays as it was written, and what has come is counted from there: no time is lost.
 */
export const tokenBucket: Algorithm<
  'tokens' | 'lastRefill',
  'refillRate' | 'intervalMs' | 'grainMs' | 'initialTokens'
> = {
  name: 'tokenBucket',
  columns: ['tokens', 'lastRefill'],
  writtenAt: 'lastRefill',
  params: ['refillRate', 'intervalMs', 'grainMs', 'initialTokens'],
  whole: false,
  tolerance: TOLERANCE,

  // NaN and the infinities would admit, or deny, for ever. Postgres sorts NaN above every number.
  holds: ({ tokens, lastRefill }) =>
    sql`${tokens} > '-Infinity' and ${tokens} < 'Infinity' and ${lastRefill} > '-Infinity'`,
  settle: (state) => state,
  fresh: (now, { initialTokens }) => ({ tokens: initialTokens, lastRefill: now }),
  freshIsWhole: ({ initialTokens, limit }) => sql`${initialTokens} >= ${limit}`,
  available: (state, now, params) => {
    const { refillRate, intervalMs, limit } = params
    return sql`least(${state.tokens} + ${countedMs(state, now, params)} * ${refillRate} / ${intervalMs}, ${limit})`
  },
  used: (state, now, params) => sql`${params.limit} - ${tokenBucket.available(state, now, params)}`,
  consume: (state, now, amount, available, params) => ({
    tokens: sql`least(${available} - ${amount}, ${params.limit})`,
    lastRefill: sql`${state.lastRefill} + ${countedMs(state, now, params)}`,
  }),
  // A bucket that starts with less than it holds never equals a new one again: deleting it would take tokens away.
  expiresAt: ({ tokens, lastRefill }, { limit, refillRate, intervalMs, grainMs, initialTokens }) =>
    sql`case when ${initialTokens} < ${limit} then 'Infinity' else ${lastRefill}
      + ceil((${limit} - ${tokens} - ${tolerance}) * ${intervalMs} / ${refillRate} / ${grainMs}) * ${grainMs} end`,

  availableAt: (state, now, undone, params) => Math.min(tokensAt(state, now, params) + undone, params.limit),
  usedAt: (state, now, params) => params.limit - tokensAt(state, now, params),
  fitsAt: (state, _now, rate, params) =>
    rate > params.limit + TOLERANCE ? Number.POSITIVE_INFINITY : holdsFrom(state, rate, params),
  wholeAt: (state, now, undone, params) =>
    Math.max(now, holdsFrom({ ...state, tokens: state.tokens + undone }, params.limit, params)),
}

type InSql = Expressions<(typeof tokenBucket.columns)[number]>
type SqlParams = Parameters<typeof tokenBucket.available>[2]
type State = Numbers<(typeof tokenBucket.columns)[number]>
type Params = Parameters<typeof tokenBucket.wholeAt>[3]

/** How much of the time since `lastRefill` has been counted by `now`. */
function countedMs({ lastRefill }: InSql, now: Expression, { grainMs }: SqlParams): Expression {
  return sql`floor((${now} - ${lastRefill}) / ${grainMs}) * ${grainMs}`
}

function tokensAt({ tokens, lastRefill }: State, now: number, params: Params): number {
  const { limit, refillRate, intervalMs, grainMs } = params
  const counted = Math.floor((now - lastRefill) / grainMs) * grainMs
  return Math.min(tokens + (counted * refillRate) / intervalMs, limit)
}

/** The first time at which the bucket holds `wanted`: the formula of `available`, solved for the time. */
function holdsFrom(state: State, wanted: number, params: Params): number {
  const { tokens, lastRefill } = state
  const { refillRate, intervalMs, grainMs } = params
  const fits = (time: number) => tokensAt(state, time, params) + TOLERANCE >= wanted
  const missingMs = ((wanted - tokens - TOLERANCE) * intervalMs) / refillRate
  return missingMs > 0
    ? firstAt(lastRefill + Math.ceil(missingMs / grainMs) * grainMs, grainMs, fits)
    : lastRefill
}

/** How a bucket fills, and how it starts. */
export interface TokenBucketOptions {
  /** `'interval'`: whole refills at each interval's end. `'continuous'`: a little all the time. Default: `'interval'`. */
  readonly refill?: 'interval' | 'continuous'
  /** Tokens in a new bucket. Default: `maxTokens`. */
  readonly initialTokens?: number
}

/** @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`, `INVALID_OPTION` */
export function tokenBucketLimiter(
  refillRate: number,
  interval: Duration,
  maxTokens: number,
  { refill = 'interval', initialTokens = maxTokens }: TokenBucketOptions = {},
): Limiter {
  const intervalMs = parseDuration(interval, 'The interval')
  const grainMs = { interval: intervalMs, continuous: 1 }[refill]
  if (grainMs === undefined) {
    throw new RatelimitError('INVALID_OPTION', "refill must be 'interval' or 'continuous'.")
  }
  if (!isAmount(refillRate) || !isAmount(maxTokens)) {
    throw new RatelimitError('INVALID_LIMIT', 'refillRate and maxTokens must be numbers from 0.000001 on.')
  }
  if (initialTokens !== 0 && !(isAmount(initialTokens) && initialTokens <= maxTokens)) {
    throw new RatelimitError('INVALID_LIMIT', 'initialTokens must be a number from 0 to maxTokens.')
  }
  const periodMs = Math.max(
    1,
    Math.ceil(((maxTokens - TOLERANCE) * intervalMs) / refillRate / grainMs) * grainMs,
  )
  if (periodMs > LONGEST_MS) {
    throw new RatelimitError('INVALID_LIMIT', 'The bucket must be full within a hundred years.')
  }
  const params = { limit: maxTokens, periodMs, refillRate, intervalMs, grainMs, initialTokens }
  return { algorithm: tokenBucket, params }
}

/** Whether a new key has all there is; buckets may start with less. */
export function startsWhole({ params }: Limiter): boolean {
  const { limit, initialTokens = limit } = params
  return initialTokens >= limit
}

function isAmount(tokens: unknown): boolean {
  return typeof tokens === 'number' && tokens >= LEAST && tokens <= Number.MAX_SAFE_INTEGER
}
