import type { StoredLimiter } from '../algorithms/algorithm.ts'
import type { RatelimitConfig } from '../config.ts'
import { Ratelimit } from '../ratelimit.ts'

type WithoutLimiter<Config> = Config extends unknown ? Omit<Config, 'limiter'> : never

/** The options of a `Ratelimit` whose limit the framework's own rate limiter decides. */
export type StoreConfig = WithoutLimiter<RatelimitConfig>

/** A window that only counts. */
export function counting(windowMs: number): StoredLimiter {
  return Ratelimit.fixedWindow(Number.MAX_SAFE_INTEGER, windowMs)
}
