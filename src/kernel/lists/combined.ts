import type { Answered } from '../answers/answer.ts'
import type { LimitAllResult, LimitResult } from '../answers/results.ts'

/** The answer of several checks. */
export function combined<Request>(
  requests: readonly Request[],
  answered: readonly Answered[],
): LimitAllResult<Request> {
  const results = answered.map(({ answer }) => answer)
  const success = results.every((answer) => answer.success)
  const denied = success ? [] : requests.filter((_, place) => !results[place]?.success)
  const retryAfter = retryAfterAll(answered)
  if (results.some(wasRepeated)) return { success, results, repeated: true, denied, retryAfter }
  return { success, results, denied, retryAfter }
}

/** Milliseconds until all calls are allowed: when the last one is, if the others stay so. */
export function retryAfterAll(answered: readonly Answered[]): number {
  const wait = answered.reduce((longest, { answer }) => Math.max(longest, answer.retryAfter), 0)
  const stayAllowed = answered.every(({ lastsMs = Number.POSITIVE_INFINITY }) => wait < lastsMs)
  return wait === 0 || stayAllowed ? wait : Number.POSITIVE_INFINITY
}

/** Whether the id of the call was used before, so that it has charged nothing. */
export function wasRepeated(answer: LimitResult): boolean {
  return answer.success && answer.repeated === true
}
