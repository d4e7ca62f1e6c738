import { deniedUntil } from './made.ts'
import type { Denied } from './results.ts'

/** `retryAfter` of a denial that the database did not make. */
const RETRY_MS = 1_000

/** The denial of a call that the database did not decide. */
export function unavailable({ limit }: { readonly limit: number }, now: number = Date.now()): Denied {
  return { ...deniedUntil(now + RETRY_MS, now, limit), degraded: true }
}
