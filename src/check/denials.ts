import type { RateLimitTable } from '../../schema/index.ts'
import type { Decision, Request } from '../runtime/call.ts'

/** When a call was sent, by the monotonic clock and by the injected one, if there is one. */
export interface Sent {
  readonly at: number
  readonly clock: number | null
}

/** The denials that a limiter remembers. */
export interface Denials {
  /** The denial that the database would give to this request. Undefined if the database has to decide. */
  decide(request: Request): Decision | undefined
  /** Notes how the database decided a request. */
  learn(request: Request, decision: Decision, place: number, sent: Sent): void
  forget(table: RateLimitTable, prefix: string, key: string): void
}

/** The denials of all limiters of this process. */
export const living: Set<WeakRef<Denials>> = new Set()

/** Makes every limiter of this process forget its denials of a key, so that the database decides again. */
export function forgetDenials(table: RateLimitTable, prefix: string, key: string): void {
  for (const ref of living) ref.deref()?.forget(table, prefix, key)
}
