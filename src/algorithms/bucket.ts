import { type SQL, sql } from 'drizzle-orm'
import { MAX_MS } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import type { Expression } from './algorithm.ts'

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
