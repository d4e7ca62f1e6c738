import type { Allowed, Denied } from './results.ts'

// Where answers begin. What more they say is added to them. Only answers from prefetched units are written
// elsewhere, because they need nothing of what is here.

/** An answer to which more is added. */
type Writable<Answer> = { -readonly [Name in keyof Answer]: Answer[Name] }

/**
 * The answer of a call that may go on. This runs for each check, and objects made by spreads are slow to make
 * and to read.
 */
export function allowedWith(limit: number, remaining: number, reset: number): Writable<Allowed> {
  return { success: true, limit, remaining, reset, retryAfter: 0 }
}

/** A denial. At `reset`, the same call would be allowed. */
export function deniedUntil(reset: number, now: number, limit: number, remaining = 0): Denied {
  return { success: false, limit, remaining, reset, retryAfter: reset - now }
}

/** `retryAfter` of a denial that the database did not make. */
const RETRY_MS = 1_000

/** The denial of a call that the database did not decide. */
export function unavailable({ limit }: { readonly limit: number }, now: number = Date.now()): Denied {
  return { ...deniedUntil(now + RETRY_MS, now, limit), degraded: true }
}
