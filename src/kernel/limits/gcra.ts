import { sql } from 'drizzle-orm'
import { checkOptions, type NamesOf } from '../base/check-options.ts'
import { type Duration, parseDuration } from '../duration.ts'
import type { Algorithm, Expression, Expressions, Limiter, Numbers } from './algorithm.ts'
import { checkAmounts, fillingMs, isPlausible, promising, TOLERANCE, TOLERANCE_SQL } from './bucket.ts'
import { limiterOf } from './limiter.ts'
import { type ColumnOf, ROWS } from './rows.ts'

type Column = ColumnOf<'gcra'>
type ParamName = 'limit' | 'unitMs'

/**
 * `tokens` is the number of units left at `windowStart`. It grows by one unit every `unitMs`, up to the limit.
 *
 * This is the generic cell rate algorithm of ITU-T I.371, in its form as a continuous-state leaky bucket. The
 * other form stores a theoretical arrival time, which would have to be finer than the milliseconds of a row.
 * The row stores the units that are left. With used units, a smaller plan would have to wait until the usage
 * under a larger plan has drained.
 */
const plain: Algorithm<Column, 'unitMs'> = {
  name: 'gcra',
  kind: 'bucket',
  ...ROWS.gcra,
  params: ['unitMs'],
  integersOnly: false,
  tolerance: TOLERANCE,

  sql: {
    holds: ({ tokens, windowStart }, clock, { periodMs }) =>
      isPlausible(tokens, windowStart, clock, periodMs),
    fresh: (now, { limit }) => ({ tokens: limit, windowStart: now }),
    available,
    used: (state, now, params) => sql`${params.limit} - ${available(state, now, params)}`,
    consume: (_state, now, left, amount, { limit }) => ({
      tokens: sql`least(${left} - ${amount}, ${limit})`,
      windowStart: now,
    }),
    expiresAt: (state, params) => whenAvailable(state, params.limit, params),
    starts: { whenAvailable, refill: ({ unitMs }) => sql`1::float8 / ${unitMs}` },
  },
  numbers: {
    fresh: (now, { limit }) => ({ tokens: limit, windowStart: now }),
    available: availableNumber,
    used: (state, now, params) => params.limit - availableNumber(state, now, params),
    consume: (state, now, amount, params) => ({
      tokens: Math.min(availableNumber(state, now, params) - amount, params.limit),
      windowStart: now,
    }),
    guess: ({ tokens, windowStart }, wanted, _now, { unitMs }) =>
      windowStart + Math.ceil((wanted - tokens - TOLERANCE) * unitMs),
  },
}

const algorithm: Algorithm<Column, 'unitMs'> = { ...plain, promising: promising(plain) }

function whenAvailable(
  { tokens, windowStart }: Expressions<Column>,
  wanted: Expression,
  { unitMs }: Expressions<ParamName>,
): Expression {
  return sql`${windowStart} + ceil((${wanted} - ${tokens} - ${TOLERANCE_SQL}) * ${unitMs})`
}

function available(
  { tokens, windowStart }: Expressions<Column>,
  now: Expression,
  { limit, unitMs }: Expressions<ParamName>,
): Expression {
  return sql`least(${tokens} + (${now} - ${windowStart}) / ${unitMs}, ${limit})`
}

function availableNumber(
  { tokens, windowStart }: Numbers<Column>,
  time: number,
  { limit, unitMs }: Numbers<ParamName>,
): number {
  return Math.min(tokens + (time - windowStart) / unitMs, limit)
}

const GCRA_NAMES: NamesOf<Parameters<typeof gcra>[2]> = { burst: true }

/**
 * Spreads `limit` calls evenly over each `period`: one every `period / limit`, after `burst` at once.
 *
 * @param limit From 0.000001 to 2^53 - 1, like `burst`. Fractions are allowed.
 * @param period Milliseconds, or a string like `'1m'`.
 * @param options `burst`: how many may come at once. Default: `limit`.
 * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 *
 * Ratelimit.gcra(100, '1m', { burst: 10 }) // one every 600 ms, and ten at once
 * ```
 */
export function gcra(limit: number, period: Duration, options: { readonly burst?: number } = {}): Limiter {
  checkOptions(options, GCRA_NAMES)
  const { burst = limit } = options
  checkAmounts({ limit, burst })
  const unitMs = parseDuration(period, 'The period') / limit
  const periodMs = fillingMs(Math.ceil((burst - TOLERANCE) * unitMs))
  return limiterOf(algorithm, { limit: burst, periodMs, unitMs })
}
