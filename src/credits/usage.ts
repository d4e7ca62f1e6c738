import { limiterOf } from '../algorithms/grant.ts'
import type { Allowed, Denied, Usage } from '../answers/results.ts'
import { crossedFrom } from '../answers/thresholds.ts'
import type { Account, Seen, Sums } from './seen.ts'

/** The answer about what a key has. */
export function usageOf({ now, granted, used }: Sums): Usage {
  const reset = used > 0 ? Number.POSITIVE_INFINITY : now
  return { limit: granted, remaining: Math.max(granted - used, 0), reset, used }
}

function sumsOf({ now, grants, debt }: Seen): Sums {
  let [granted, used] = [0, debt]
  for (const { look } of grants) {
    const { count, prevCount, windowStart } = look.state
    if (windowStart <= now) continue
    granted += prevCount
    used += count
  }
  return { now, granted, used }
}

/** The answer of a call that has changed nothing. */
export function allowed(seen: Seen): Allowed {
  const { limit, remaining, reset } = usageOf(sumsOf(seen))
  return { success: true, limit, remaining, reset, retryAfter: 0 }
}

/** The answer of a call that has taken something, with the thresholds that it has crossed. */
export function charged({ checker, credits }: Account, before: Seen, after: Seen): Allowed {
  const [{ used: from }, { used: to, granted }] = [sumsOf(before), sumsOf(after)]
  const { thresholds } = checker.config.reporting
  const crossed = crossedFrom(limiterOf(credits), granted, from, to, thresholds)
  return { ...allowed(after), ...(crossed.length > 0 ? { crossed } : {}) }
}

/** The answer of a call that was denied. Nothing refills, so it would stay denied. */
export function denied(seen: Seen): Denied {
  const { limit, remaining } = usageOf(sumsOf(seen))
  const never = Number.POSITIVE_INFINITY
  return { success: false, limit, remaining, reset: never, retryAfter: never }
}
