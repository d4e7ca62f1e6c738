import { withCrossed } from '../kernel/answers/answer.ts'
import { allowedWith, deniedUntil } from '../kernel/answers/made.ts'
import type { Allowed, Denied, Usage } from '../kernel/answers/results.ts'
import { crossedFrom } from '../kernel/answers/thresholds.ts'
import type { Account, Sums } from './seen.ts'

/** The answer about what a key has. */
export function usageBy({ now, granted, used }: Sums): Usage {
  const reset = used > 0 ? Number.POSITIVE_INFINITY : now
  return { limit: granted, remaining: Math.max(granted - used, 0), reset, used }
}

/** The answer of a call that has changed nothing. */
export function allowed(sums: Sums): Allowed {
  const { limit, remaining, reset } = usageBy(sums)
  return allowedWith(limit, remaining, reset)
}

/** The answer of a call that has taken something, with the thresholds that it has crossed. */
export function charged({ checker, limiter }: Account, before: Sums, after: Sums): Allowed {
  const { thresholds } = checker.terms.reporting
  const crossed = crossedFrom(limiter, after.granted, before.used, after.used, thresholds)
  return withCrossed(allowed(after), crossed)
}

/** The answer of a call that was denied. Nothing refills, so without a block it would stay denied. */
export function deniedFor(sums: Sums, until: number = Number.POSITIVE_INFINITY): Denied {
  const { limit, remaining } = usageBy(sums)
  return deniedUntil(until, sums.now, limit, remaining)
}
