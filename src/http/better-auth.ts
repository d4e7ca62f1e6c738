import { Ratelimit } from '../ratelimit.ts'
import { counting, ratelimitOf, type StoreConfig } from './store.ts'

export type { StoreConfig }

/** What Better Auth asks of a storage of rate limits, from version 1.7 on. */
export interface RateLimitStorage {
  /** Counts a request, and decides on it by the rule. */
  consume(
    key: string,
    rule: {
      /** Seconds. */
      readonly window: number
      readonly max: number
    },
  ): Promise<{
    allowed: boolean
    /** Seconds; null if the request is allowed. */
    retryAfter: number | null
  }>
}

/**
 * A `customStorage` for the rate limits of Better Auth. Its rules become sliding windows.
 *
 * With `onError: 'allow'` a request passes if the database is away, with `'deny'` none does.
 *
 * @throws RatelimitError what the constructor of `Ratelimit` throws.
 *
 * @example
 * ```ts
 * import { betterAuth } from 'better-auth'
 * import { rateLimitStorage } from 'drizzle-ratelimit/better-auth'
 * import { db } from './app.ts'
 *
 * betterAuth({ rateLimit: { enabled: true, customStorage: rateLimitStorage({ db, prefix: 'auth' }) } })
 * ```
 */
export function rateLimitStorage(config: StoreConfig): RateLimitStorage {
  // Each rule has a limiter of its own.
  const ratelimit = ratelimitOf(config, counting(1000))
  return {
    consume: async (key, { window, max }) => {
      const limiter = Ratelimit.slidingWindow(max, Math.ceil(window * 1000))
      const { success, retryAfter } = await ratelimit.limit(key, { limiter })
      // With a `max` of 0 no wait helps, but a number is promised.
      const seconds = Number.isFinite(retryAfter) ? Math.ceil(retryAfter / 1000) : window
      return { allowed: success, retryAfter: success ? null : seconds }
    },
  }
}
