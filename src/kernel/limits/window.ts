import { type SQL, sql } from 'drizzle-orm'
import { RatelimitError } from '../errors.ts'
import type { Expression } from './algorithm.ts'
import { MAX_COUNT } from './limiter.ts'

/** @throws RatelimitError `INVALID_LIMIT` */
export function checkTokens(tokens: number, name = 'tokens'): void {
  if ((!Number.isSafeInteger(tokens) || tokens < 0) && tokens !== Number.POSITIVE_INFINITY) {
    throw new RatelimitError(
      'INVALID_LIMIT',
      `${name} must be a whole number from 0 to 2^53 - 1, or Infinity; 0 denies every call.`,
    )
  }
}

const MAX: SQL = sql.raw(String(MAX_COUNT))

/**
 * A count after an amount was taken. No call makes it larger than a double can represent exactly. Other
 * programs may have written a larger one, because the column is a bigint.
 */
export function countAfter(count: Expression, amount: Expression): SQL<number> {
  return sql`least(greatest(${count} + ${amount}, 0), ${MAX})`
}

export function countNumberAfter(count: number, amount: number): number {
  return Math.min(Math.max(count + amount, 0), MAX_COUNT)
}

/** Whether a row expires at the `end` of a window: exactly then, or at the next time of the grid. */
export function expiresWith(
  end: Expression,
  expires: Expression,
  onGrid: (time: Expression) => Expression,
): SQL<boolean> {
  return sql`${expires} in (${end}, ${onGrid(end)})`
}
