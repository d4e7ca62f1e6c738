import type { Remaining, Usage } from './results.ts'

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
