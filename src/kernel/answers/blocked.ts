import type { Limiter } from '../limits/algorithm.ts'
import type { Snapshot } from '../limits/search.ts'
import type { Usage } from './results.ts'

// Until when a key is blocked, as answers say it.

/** When the block in a row ends. Undefined if the row has none. */
export function blockedUntilOf({ algorithm }: Limiter, { state, params }: Snapshot): number | undefined {
  return algorithm.numbers.blockedUntil?.(state, params)
}

/** The field `blockedUntil`, of a row that has a block. */
export function blockedIn(limiter: Limiter, snapshot: Snapshot): Pick<Usage, 'blockedUntil'> {
  const blockedUntil = blockedUntilOf(limiter, snapshot)
  return blockedUntil === undefined ? {} : { blockedUntil }
}
