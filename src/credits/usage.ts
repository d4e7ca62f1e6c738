import type { Usage } from '../check/results.ts'
import { leftOf, type Seen } from './read.ts'

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
