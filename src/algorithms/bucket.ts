import { type SQL, sql } from 'drizzle-orm'
import { MAX_MS } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import type { Expression, Expressions, Numbers } from './algorithm.ts'

/**
 * In double precision, three times 0.1 is a little more than 0.3. Taking 0.1 three times from 0.3 must work.
 */
export const TOLERANCE = 1e-9

export const TOLERANCE_SQL: Expression = sql.raw(`${TOLERANCE}::float8`) as Expression

/** Well above the tolerance. */
const MIN_AMOUNT = 1e-6

/** @throws RatelimitError `INVALID_LIMIT` */
export function checkAmounts(amounts: Readonly<Record<string, unknown>>): void {
  const isAmount = (amount: unknown) =>
    typeof amount === 'number' && amount >= MIN_AMOUNT && amount <= Number.MAX_SAFE_INTEGER
  if (Object.values(amounts).every(isAmount)) return
  const names = Object.keys(amounts).join(' and ')
  throw new RatelimitError(
    'INVALID_LIMIT',
    `${names} must be numbers from 0.000001 to 2^53 - 1; only a window can count without a limit.`,
  )
}

/**
 * The time in which an empty bucket fills.
 *
 * @throws RatelimitError `INVALID_LIMIT`
 */
export function fillingMs(durationMs: number): number {
  if (durationMs > MAX_MS) {
    throw new RatelimitError('INVALID_LIMIT', 'The bucket must be full within a hundred years.')
  }
  return Math.max(1, durationMs)
}

// No column is free for the time until which starts are promised. The date of the row says it in microseconds:
// `n` after the whole millisecond mean up to 2^n - 1 ms after it, and 0 mean that nothing is promised. Until
// then the row keeps its date, so that writing it does not move the end.

/** The date of a bucket's row, in whole milliseconds. */
export function wholeMs(date: Expression): Expression {
  return sql`floor(${date})`
}

/** The date of a row in which starts are promised until then. A longer promise in the same row stays. */
export function promised(date: Expression, until: Expression): Expression {
  const whole = wholeMs(date)
  return sql`greatest(${date}, ${whole} + ceil(ln(greatest(${until} - ${whole}, 0::float8) + 1::float8) / ln(2::float8)) / 1000::float8)`
}

/** The date of a row that is read at the time of the clock: whole, if nothing is promised any more. */
export function datedAt(date: Expression, clock: Expression): Expression {
  return sql`case when ${promisedUntil(date)} > ${clock} then ${date} else ${wholeMs(date)} end`
}

/** The time until which starts are promised. The date of the row if none are. */
function promisedUntil(date: Expression): Expression {
  const whole = wholeMs(date)
  return sql`${whole} + power(2::float8, round((${date} - ${whole}) * 1000::float8)) - 1::float8`
}

function promisedNumberUntil(date: number): number {
  const whole = Math.floor(date)
  return whole + 2 ** Math.round((date - whole) * 1000) - 1
}

/** A bucket's row as a formula reads it. */
interface Dated<T> {
  readonly tokens: T
  readonly date: T
}

/**
 * The row after `amount` is taken. `moved` is the date up to which refills are counted in what is `left`. A
 * full bucket has no promises that a later refund could break.
 */
export function taken(
  { tokens, date }: Dated<Expression>,
  left: Expression,
  amount: Expression,
  { limit }: Expressions<'limit'>,
  moved: Expression,
): Dated<Expression> {
  const isKept = sql`${date} > ${wholeMs(date)} and ${left} < ${limit}`
  return {
    tokens: sql`case when ${isKept} then ${tokens} - ${amount} else least(${left} - ${amount}, ${limit}) end`,
    date: sql`case when ${isKept} then ${date} else ${moved} end`,
  }
}

/** The same formula on numbers. It also withholds what a refund may not give back, see {@link refundable}. */
export function takenNumber(
  { tokens, date }: Dated<number>,
  now: number,
  amount: number,
  { limit }: Numbers<'limit'>,
  moved: number,
  availableAt: (time: number) => number,
): Dated<number> {
  const left = availableAt(now)
  if (date === Math.floor(date) || left >= limit) {
    return { tokens: Math.min(left - amount, limit), date: moved }
  }
  return { tokens: tokens - Math.max(amount, Math.min(availableAt(promisedNumberUntil(date)), 0)), date }
}

/**
 * How much of a refund's `amount`, which is negative, a bucket takes back. While starts are promised, it is no
 * more than the debt that is left after the last of them. With more, another call could start beside one.
 */
export function refundable(
  date: Expression,
  amount: Expression,
  availableAt: (time: Expression) => Expression,
): Expression {
  const most = sql`least(${availableAt(promisedUntil(date))}, 0::float8)`
  return sql`(case when ${date} > ${wholeMs(date)} then greatest(${amount}, ${most}) else ${amount} end)`
}

/**
 * Whether a bucket can have written the row. An impossible amount would allow or deny calls for ever. NaN does
 * not pass, because Postgres sorts it above every number.
 */
export function isPlausible(
  tokens: Expression,
  written: Expression,
  clock: Expression,
  periodMs: Expression,
): SQL<boolean> {
  return sql`${written} - ${clock} <= ${periodMs} and ${written} > '-1e14'::float8 and abs(${tokens}) < 1e100::float8`
}
