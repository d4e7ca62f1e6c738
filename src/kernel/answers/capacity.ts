import type { Limiter } from '../limits/algorithm.ts'
import { isEndless, MAX_COUNT } from '../limits/limiter.ts'
import type { Snapshot } from '../limits/search.ts'
import type { Remaining, Usage } from './results.ts'

// What a row has.

/** The capacity: the limit, or the row's own. */
export function capacityOf(limiter: Limiter, snapshot: Snapshot): number {
  return isEndless(limiter) ? limiter.limit : mostIn(limiter, snapshot)
}

/** The most that can be available. For a window without a limit, this is the most that it can count. */
export function mostIn({ algorithm }: Limiter, { state, params }: Snapshot): number {
  return algorithm.numbers.capacity?.(state, params) ?? params.limit
}

/** The amount that a call may take, by the rule of the statement. */
export function availableIn({ algorithm }: Limiter, { state, now, params }: Snapshot): number {
  return algorithm.numbers.available(state, now, params) + algorithm.tolerance
}

/**
 * The used units. A block by hand has a larger count than calls can make: it uses up the whole limit, and
 * nothing where there is none.
 */
export function usedIn(limiter: Limiter, snapshot: Snapshot): number {
  const { state, now, params } = snapshot
  const used = limiter.algorithm.numbers.used(state, now, params)
  if (used <= MAX_COUNT || blockedUntilOf(limiter, snapshot) === undefined) return used
  return isEndless(limiter) ? 0 : params.limit
}

/** Whole units that can be taken. */
export function remainingOf(limiter: Limiter, snapshot: Snapshot): number {
  const isFree = isEndless(limiter) && blockedUntilOf(limiter, snapshot) === undefined
  return isFree ? limiter.limit : unitsIn(limiter, snapshot)
}

/** The same. For a window without a limit, these are the units that it can still count. */
export function unitsIn(limiter: Limiter, snapshot: Snapshot): number {
  return Math.max(Math.floor(availableIn(limiter, snapshot)), 0)
}

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

/** What an answer says while another row than its own blocks the key until then. */
export function behindBlock<Answer extends Remaining & Pick<Usage, 'blockedUntil'>>(
  answer: Answer,
  until: number | undefined,
): Answer {
  if (until === undefined) return answer
  const { reset, remaining, blockedUntil = until } = answer
  // Without a limit, `reset` is now, which may be by the clock of this machine.
  const end = remaining === Number.POSITIVE_INFINITY ? until : Math.max(reset, until)
  return { ...answer, remaining: 0, reset: end, blockedUntil: Math.max(blockedUntil, until) }
}
