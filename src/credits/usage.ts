import { limiterOf } from '../algorithms/grant.ts'
import type { Allowed, Denied, Usage } from '../answers/results.ts'
import { crossedFrom } from '../answers/thresholds.ts'
import { type Account, leftOf, type Seen } from './seen.ts'

/** What a key has: the sums over the grants that have not ended. What is owed counts as used. */
export function usageOf({ now, grants, debt }: Seen): Usage {
  let [limit, used, left] = [0, debt, -debt]
  for (const grant of grants) {
    const { count, prevCount, windowStart } = grant.look.state
    if (windowStart <= now) continue
    limit += prevCount
    used += count
    left += leftOf(grant)
  }
  return { limit, remaining: Math.max(left, 0), reset: used > 0 ? Number.POSITIVE_INFINITY : now, used }
}

/** The answer of a call that has changed nothing. */
export function allowed(seen: Seen): Allowed {
  const { limit, remaining, reset } = usageOf(seen)
  return { success: true, limit, remaining, reset, retryAfter: 0 }
}

/** The answer of a call that has taken something, with the thresholds that it has crossed. */
export function charged({ checker, credits }: Account, before: Seen, after: Seen): Allowed {
  const [{ used: from }, { used: to, limit }] = [usageOf(before), usageOf(after)]
  const { thresholds } = checker.config.reporting
  const crossed = crossedFrom(limiterOf(credits), limit, from, to, thresholds)
  return { ...allowed(after), ...(crossed.length > 0 ? { crossed } : {}) }
}

/** The answer of a call that was denied. Nothing refills, so it would stay denied. */
export function denied(seen: Seen): Denied {
  const { limit, remaining } = usageOf(seen)
  const never = Number.POSITIVE_INFINITY
  return { success: false, limit, remaining, reset: never, retryAfter: never }
}
