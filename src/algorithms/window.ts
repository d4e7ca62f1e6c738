import { type SQL, sql } from 'drizzle-orm'
import { RatelimitError } from '../errors.ts'
import type { Expression } from './algorithm.ts'

/** @throws RatelimitError `INVALID_LIMIT` */
export function checkTokens(tokens: number): void {
  if ((!Number.isSafeInteger(tokens) || tokens < 0) && tokens !== Number.POSITIVE_INFINITY) {
    throw new RatelimitError(
      'INVALID_LIMIT',
      'tokens must be a whole number from 0 to 2^53 - 1, or Infinity; 0 denies every call, Infinity none.',
    )
  }
}

const MAX_COUNT: SQL = sql.raw(String(Number.MAX_SAFE_INTEGER))

/**
 * A count after an amount was taken. A double represents it exactly and a bigint holds it, however large the
 * debt grows.
 */
export function countAfter(count: Expression, amount: Expression): SQL<number> {
  return sql`least(greatest(${count} + ${amount}, 0), ${MAX_COUNT})`
}

/** The same on numbers. */
export function countNumberAfter(count: number, amount: number): number {
  return Math.min(Math.max(count + amount, 0), Number.MAX_SAFE_INTEGER)
}
