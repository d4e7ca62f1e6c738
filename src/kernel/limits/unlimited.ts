import type { Limiter, Unlimited } from './algorithm.ts'

const INFINITY = Number.POSITIVE_INFINITY

const NOTHING = { count: 0, prevCount: 0, windowStart: 0, tokens: 0, lastRefill: 0 }

const UNLIMITED: Unlimited = {
  stored: false,
  limit: INFINITY,
  windowMs: undefined,
  algorithm: {
    name: 'unlimited',
    kind: 'bucket',
    integersOnly: false,
    tolerance: 0,
    numbers: {
      fresh: () => NOTHING,
      available: () => INFINITY,
      used: () => 0,
      consume: (state) => state,
      guess: (_state, _wanted, now) => now,
    },
  },
  params: { limit: INFINITY, periodMs: 1, expiryGridMs: 1 },
}

/**
 * No limit: every call is allowed, and nothing is read or written. A stored row stays for the next plan.
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 *
 * declare const reports: Ratelimit
 * await reports.limit('org:1', { limiter: Ratelimit.unlimited() }) // a plan without a limit
 * ```
 */
export function unlimited(): Limiter {
  return UNLIMITED
}
