import { sql } from 'drizzle-orm'
import { type Duration, MAX_MS, parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import type { Algorithm, Expressions, Limiter, Numbers } from './algorithm.ts'
import { limiterOf } from './limiter.ts'

/**
 * Tokens are double precision: 0.1 taken three times leaves 0.3 a little short of nothing, and must be
 * allowed.
 */
const TOLERANCE = 1e-9
/** Amounts are well above the tolerance. */
const MIN_AMOUNT = 1e-6
const tolerance = sql.raw(String(TOLERANCE))

const COLUMNS = ['tokens', 'lastRefill'] as const
type Column = (typeof COLUMNS)[number]
type Param = 'refillRate' | 'intervalMs' | 'tickMs' | 'initialTokens'
type InSql = Expressions<Param | 'limit' | 'periodMs'>
type InNumbers = Numbers<Param | 'limit' | 'periodMs'>

/**
 * A bucket that gets `refillRate` tokens every `intervalMs`, counted each `tickMs`: the interval for whole
 * refills, a millisecond for continuous ones.
 *
 * Until something is taken the state stays as it was written, and refills are counted from there: no time is
 * lost.
 */
export const tokenBucket: Algorithm<Column, Param> = bucket({ startsFull: true })

/**
 * A bucket whose new keys have less than `maxTokens`. It never equals a new one again once it has filled, so
 * its rows never expire: deleting one would take tokens away.
 */
const partlyFilledBucket: Algorithm<Column, Param> = bucket({ startsFull: false })

function bucket({ startsFull }: { readonly startsFull: boolean }): Algorithm<Column, Param> {
  const countedMs = (
    { lastRefill }: Expressions<Column>,
    now: Expressions<'now'>['now'],
    { tickMs }: InSql,
  ) => sql<number>`floor((${now} - ${lastRefill}) / ${tickMs}) * ${tickMs}`
  const countedNumberMs = ({ lastRefill }: Numbers<Column>, now: number, { tickMs }: InNumbers) =>
    Math.floor((now - lastRefill) / tickMs) * tickMs

  const self: Algorithm<Column, Param> = {
    name: startsFull ? 'tokenBucket' : 'partlyFilledBucket',
    kind: 'bucket',
    columns: COLUMNS,
    emptyColumns: [],
    datedBy: 'lastRefill',
    params: ['refillRate', 'intervalMs', 'tickMs', 'initialTokens'],
    integersOnly: false,
    tolerance: TOLERANCE,
    startsFull,

    sql: {
      // Amounts that no bucket can have would admit, or deny, for ever. Postgres sorts NaN above every
      // number.
      holds: ({ tokens, lastRefill }, clock, { periodMs }) =>
        sql`${lastRefill} - ${clock} <= ${periodMs} and ${lastRefill} > -1e14 and abs(${tokens}) < 1e100`,
      settle: (row) => row,
      fresh: (now, params) => ({
        tokens: startsFull ? params.limit : params.initialTokens,
        lastRefill: now,
      }),
      available: (state, now, params) => {
        const { refillRate, intervalMs, limit } = params
        return sql`least(${state.tokens} + ${countedMs(state, now, params)} * ${refillRate} / ${intervalMs}, ${limit})`
      },
      used: (state, now, params) => sql`${params.limit} - ${self.sql.available(state, now, params)}`,
      consume: (state, now, available, amount, params) => ({
        tokens: sql`least(${available} - ${amount}, ${params.limit})`,
        lastRefill: sql`${state.lastRefill} + ${countedMs(state, now, params)}`,
      }),
      expiresAt: ({ tokens, lastRefill }, { limit, refillRate, intervalMs, tickMs }) =>
        startsFull
          ? sql`${lastRefill} + ceil((${limit} - ${tokens} - ${tolerance}) * ${intervalMs} / ${refillRate} / ${tickMs}) * ${tickMs}`
          : sql`'Infinity'::float8`,
    },
    numbers: {
      available: (state, time, params) => {
        const { refillRate, intervalMs, limit } = params
        return Math.min(
          state.tokens + (countedNumberMs(state, time, params) * refillRate) / intervalMs,
          limit,
        )
      },
      used: (state, now, params) => params.limit - self.numbers.available(state, now, params),
      consume: (state, now, amount, params) => ({
        tokens: Math.min(self.numbers.available(state, now, params) - amount, params.limit),
        lastRefill: state.lastRefill + countedNumberMs(state, now, params),
      }),
      guess: ({ tokens, lastRefill }, wanted, _now, { refillRate, intervalMs, tickMs }) => {
        const missingMs = ((wanted - tokens - TOLERANCE) * intervalMs) / refillRate
        return lastRefill + Math.ceil(missingMs / tickMs) * tickMs
      },
    },
  }
  return self
}

/** How a bucket fills, and how it starts. */
export interface TokenBucketOptions {
  /**
   * `'interval'`: whole refills at each interval's end. `'continuous'`: a little all the time. Default:
   * `'interval'`.
   */
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
  if (refill !== 'interval' && refill !== 'continuous') {
    throw new RatelimitError('INVALID_OPTION', "refill must be 'interval' or 'continuous'.")
  }
  const tickMs = refill === 'interval' ? intervalMs : 1
  if (!isAmount(refillRate) || !isAmount(maxTokens)) {
    throw new RatelimitError('INVALID_LIMIT', 'refillRate and maxTokens must be numbers from 0.000001 on.')
  }
  if (initialTokens !== 0 && !(isAmount(initialTokens) && initialTokens <= maxTokens)) {
    throw new RatelimitError('INVALID_LIMIT', 'initialTokens must be a number from 0 to maxTokens.')
  }
  const periodMs = Math.max(
    1,
    Math.ceil(((maxTokens - TOLERANCE) * intervalMs) / refillRate / tickMs) * tickMs,
  )
  if (periodMs > MAX_MS) {
    throw new RatelimitError('INVALID_LIMIT', 'The bucket must be full within a hundred years.')
  }
  const algorithm = initialTokens < maxTokens ? partlyFilledBucket : tokenBucket
  return limiterOf(algorithm, { limit: maxTokens, periodMs, refillRate, intervalMs, tickMs, initialTokens })
}

function isAmount(tokens: unknown): boolean {
  return typeof tokens === 'number' && tokens >= MIN_AMOUNT && tokens <= Number.MAX_SAFE_INTEGER
}
