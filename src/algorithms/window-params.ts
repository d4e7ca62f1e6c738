import { type SQL, sql } from 'drizzle-orm'
import { type Duration, parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import type { CommonParam, Expression, Numbers } from './algorithm.ts'

/**
 * The parameters of both windows.
 *
 * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`
 */
export function windowParams(tokens: number, window: Duration): Numbers<CommonParam> {
  checkTokens(tokens)
  return { limit: tokens, periodMs: parseDuration(window, 'The window') }
}

/** @throws RatelimitError `INVALID_LIMIT` */
export function checkTokens(tokens: number): void {
  if (!Number.isSafeInteger(tokens) || tokens < 0) {
    throw new RatelimitError('INVALID_LIMIT', 'tokens must be a whole number; 0 denies every call.')
  }
}

/** A count as the limit reads it: what is over the limit is the limit. */
export function within(count: number, limit: number): number {
  return Math.min(Math.max(count, 0), limit)
}

/** A count after so much was taken, or given back. Debts upon debts stay what a double tells exactly, and a bigint holds. */
export function countAfter(count: Expression, amount: Expression): SQL<number> {
  return sql`least(greatest(${count} + ${amount}, 0), ${sql.raw(String(Number.MAX_SAFE_INTEGER))})`
}
