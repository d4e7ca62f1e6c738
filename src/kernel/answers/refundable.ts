import type { Limiter } from '../limits/algorithm.ts'
import { hasPeriods, periodFrom } from '../limits/limiter.ts'
import type { LimitResult } from './results.ts'

// Until when what a call has paid can be given back.

/**
 * The time at which the bucket is full again by itself after a charge with this answer. From then on a refund
 * gives nothing back. Null for windows, because their start decides on refunds.
 */
export function refundableUntilOf({ algorithm }: Limiter, { reset }: LimitResult): number | null {
  return algorithm.kind === 'bucket' && Number.isFinite(reset) ? reset : null
}

/** When the period that paid ends under the plan that it was charged with. Null if there is none. */
export function windowEndOf(
  limiter: Limiter,
  { windowStart }: { readonly windowStart: number | null },
): number | null {
  return windowStart !== null && hasPeriods(limiter) ? periodFrom(limiter, windowStart).end : null
}
