import type { RateLimitTable } from '../../schema/index.ts'
import type { Decision, Request } from '../runtime/call.ts'

/** When a call was sent: by the monotonic clock, and by the injected one where there is one. */
export interface Sent {
  readonly at: number
  readonly clock: number | null
}

/** What a limiter remembers of denials, as the checks use it. */
export interface Denials {
  /** The denial that the database would give to this request; undefined if it has to be asked. */
  decide(request: Request): Decision | undefined
  /** Learns how the database decided a request that was sent then. */
  learn(request: Request, decision: Decision, place: number, sent: Sent): void
  forget(table: RateLimitTable, prefix: string, key: string): void
}

/** Those of all limiters of this process that remember denials. */
export const living: Set<WeakRef<Denials>> = new Set()

/** Makes every limiter of this process forget its denials of a key, so that it asks the database again. */
export function forgetDenials(table: RateLimitTable, prefix: string, key: string): void {
  for (const ref of living) ref.deref()?.forget(table, prefix, key)
}
