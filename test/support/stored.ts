import type { Limiter, StoredLimiter } from '../../src/kernel/limits/algorithm.ts'

/** A limit as the kernel sees it. */
export function stored(limiter: Limiter): StoredLimiter {
  if (!limiter.stored) throw new Error('It has no rows.')
  return limiter
}
