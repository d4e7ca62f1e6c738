import type { Ratelimit } from '../../src/index.ts'
import { makeKeys, PLENTY } from '../contenders/contender.ts'
import { keyNumbers } from '../measure.ts'

/** How many keys a limit knows. */
export const KEYS = 1_000

/**
 * A limit that has the rows of all keys. By default half of each is taken, so that every call is admitted and a
 * refund has something to give back.
 */
export async function withRows<R extends Ratelimit>(ratelimit: R, taken: number = PLENTY / 2): Promise<R> {
  const check = async (key: string) => (await ratelimit.limit(key, { rate: taken })).success
  await makeKeys({ check }, keyNumbers(KEYS))
  return ratelimit
}
