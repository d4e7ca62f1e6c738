import { type SQL, sql } from 'drizzle-orm'
import { type Duration, LONGEST_MS, parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import type { Algorithm, Expression, Expressions, Limiter, Numbers } from './algorithm.ts'

type Column = 'tokens' | 'lastRefill'
type Param = 'refillRate' | 'intervalMs' | 'initialTokens'

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
  const algorithm = algorithms[refill]
  if (!algorithm) throw new RatelimitError('INVALID_OPTION', "refill must be 'interval' or 'continuous'.")
  if (!isAmount(refillRate) || !isAmount(maxTokens)) {
    throw new RatelimitError('INVALID_LIMIT', 'refillRate and maxTokens must be numbers above 0.')
  }
  if (initialTokens !== 0 && !(isAmount(initialTokens) && initialTokens <= maxTokens)) {
    throw new RatelimitError('INVALID_LIMIT', 'initialTokens must be a number from 0 to maxTokens.')
  }
  const periodMs = Math.ceil(maxTokens / refillRate) * intervalMs
  if (periodMs > LONGEST_MS) {
    throw new RatelimitError('INVALID_LIMIT', 'The bucket must be full within a hundred years.')
  }
  return { algorithm, params: { limit: maxTokens, periodMs, refillRate, intervalMs, initialTokens } }
}

function isAmount(tokens: unknown): boolean {
  return typeof tokens === 'number' && tokens > 0 && tokens <= Number.MAX_SAFE_INTEGER
}

/** Tokens are double precision: 0.1 taken three times leaves 0.3 a little short of nothing, and must be allowed. */
const TOLERANCE = 1e-9

/** What both kinds of refill share. */
const bucket: Omit<Algorithm<Column, Param>, 'name' | 'settle' | 'expiresAt' | 'fitsAt' | 'wholeAt'> = {
  columns: ['tokens', 'lastRefill'],
  writtenAt: 'lastRefill',
  params: ['refillRate', 'intervalMs', 'initialTokens'],
  whole: false,

  // NaN and the infinities would admit, or deny, for ever. Postgres sorts NaN above every number.
  holds: ({ tokens }) => sql`${tokens} > '-Infinity' and ${tokens} < 'Infinity'`,
  fresh: (now, { initialTokens }) => ({ tokens: initialTokens, lastRefill: now }),
  available: ({ tokens }) => sql`${tokens} + ${sql.raw(String(TOLERANCE))}`,
  consume: ({ tokens, lastRefill }, amount, { limit }) => ({
    tokens: sql`least(${tokens} - ${amount}, ${limit})`,
    lastRefill,
  }),
}

/** Whole refills, at the end of each interval. `lastRefill` moves on by whole intervals, so that no time is lost. */
export const tokenBucket: Algorithm<Column, Param> = {
  ...bucket,
  name: 'tokenBucket',

  settle: ({ tokens, lastRefill }, now, { limit, refillRate, intervalMs }) => {
    const intervals = sql`floor((${now} - ${lastRefill}) / ${intervalMs})`
    return {
      tokens: sql`least(${tokens} + ${intervals} * ${refillRate}, ${limit})`,
      lastRefill: sql`${lastRefill} + ${intervals} * ${intervalMs}`,
    }
  },
  expiresAt: (state, params) =>
    unlessPartial(
      params,
      sql`${state.lastRefill} + ceil(${missing(state, params)} / ${params.refillRate}) * ${params.intervalMs}`,
    ),

  fitsAt: (state, _now, rate, params) => {
    if (rate > params.limit + TOLERANCE) return Number.POSITIVE_INFINITY
    return state.lastRefill + Math.ceil(short(state, rate) / params.refillRate) * params.intervalMs
  },
  wholeAt: (state, now, undone, params) => {
    const gap = short(state, params.limit - undone)
    return gap > 0 ? state.lastRefill + Math.ceil(gap / params.refillRate) * params.intervalMs : now
  },
}

/** Tokens flow in all the time, a fraction of one with every millisecond. */
export const continuousTokenBucket: Algorithm<Column, Param> = {
  ...bucket,
  name: 'continuousTokenBucket',

  settle: ({ tokens, lastRefill }, now, { limit, refillRate, intervalMs }) => ({
    tokens: sql`least(${tokens} + (${now} - ${lastRefill}) * ${refillRate} / ${intervalMs}, ${limit})`,
    lastRefill: now,
  }),
  expiresAt: (state, params) =>
    unlessPartial(
      params,
      sql`${state.lastRefill} + ceil(${missing(state, params)} * ${params.intervalMs} / ${params.refillRate})`,
    ),

  fitsAt: (state, _now, rate, params) => {
    if (rate > params.limit + TOLERANCE) return Number.POSITIVE_INFINITY
    return state.lastRefill + Math.ceil((short(state, rate) * params.intervalMs) / params.refillRate)
  },
  wholeAt: (state, now, undone, params) => {
    const gap = short(state, params.limit - undone)
    return gap > 0 ? state.lastRefill + Math.ceil((gap * params.intervalMs) / params.refillRate) : now
  },
}

const algorithms = { interval: tokenBucket, continuous: continuousTokenBucket } as const

/** The tokens by which a bucket falls short of `wanted`. */
function short({ tokens }: Numbers<Column>, wanted: number): number {
  return wanted - tokens - TOLERANCE
}

function missing({ tokens }: Expressions<Column>, { limit }: Expressions<'limit'>): SQL<number> {
  return sql`(${limit} - ${tokens} - ${sql.raw(String(TOLERANCE))})`
}

/** A bucket that starts with fewer tokens than it holds never equals a new one again: deleting it would take tokens away. */
function unlessPartial(
  { initialTokens, limit }: Expressions<'initialTokens' | 'limit'>,
  full: SQL<number>,
): Expression {
  return sql`case when ${initialTokens} < ${limit} then 'Infinity' else ${full} end`
}
