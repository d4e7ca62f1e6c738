import type { Limiter } from '../limits/algorithm.ts'
import type { Snapshot } from '../limits/search.ts'
import type { Remaining, Usage } from './results.ts'

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
