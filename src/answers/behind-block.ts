import type { Remaining, Usage } from './results.ts'

/** What an answer says while another row than its own blocks the key until then. */
export function behindBlock<Answer extends Remaining & Pick<Usage, 'blockedUntil'>>(
  answer: Answer,
  until: number | undefined,
): Answer {
  if (until === undefined) return answer
  const { reset, blockedUntil = until } = answer
  const [end, latest] = [Math.max(reset, until), Math.max(blockedUntil, until)]
  return { ...answer, remaining: 0, reset: end, blockedUntil: latest }
}
