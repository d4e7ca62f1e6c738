import { Ratelimit } from '../ratelimit.ts'
import { counting, ratelimitOf, type StoreConfig, storable, warnOfFailure } from './store.ts'

export type { StoreConfig }

/** The storage of rate limits that Better Auth 1.7 and later need. */
export interface RateLimitStorage {
  /** Counts a request, and decides on it by the rule. */
  consume(
    key: string,
    rule: {
      /** Length of the window in seconds. */
      readonly window: number
      readonly max: number
    },
  ): Promise<{
    allowed: boolean
    /** Seconds until the request would be allowed; null if it is. */
    retryAfter: number | null
  }>
}

/**
 * A `customStorage` for the rate limits of Better Auth. Its rules become sliding windows.
 *
 * Better Auth does not catch errors of its storage, and on some servers they end the process. So a request is
 * denied if its check fails, with a warning. During an outage, requests pass with `onError: 'allow'`. A key
 * that is not valid for a row is stored as its SHA-256.
 *
 * @throws RatelimitError the errors of the constructor of `Ratelimit`.
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
  const consume: RateLimitStorage['consume'] = async (key, { window, max }) => {
    const limiter = Ratelimit.slidingWindow(max, Math.ceil(window * 1000))
    const { success, retryAfter } = await ratelimit.limit(await storable(key, config.prefix), { limiter })
    // With a `max` of 0, no wait helps, but the interface needs a number.
    const seconds = Number.isFinite(retryAfter) ? Math.ceil(retryAfter / 1000) : window
    return { allowed: success, retryAfter: success ? null : seconds }
  }
  return {
    consume: (key, rule) =>
      consume(key, rule).catch((error: unknown) => {
        warnOfFailure(error, config.prefix)
        return { allowed: false, retryAfter: 1 }
      }),
  }
}
