import type { Answered } from '../answers/answer.ts'
import type { LimitAllResult, LimitResult } from '../answers/results.ts'
import { checkOptions, checkSwitch, type NamesOf, type OptionNames } from '../base/check-options.ts'
import type { LimiterCall } from '../engine/checker.ts'
import { calledBy, handleOf } from '../engine/handles.ts'
import type { Requested } from '../options/calls.ts'
import { checkOption } from '../options/validate.ts'

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

/** The options of a request, with their checks. What has true here is checked by the call. */
const REQUEST: NamesOf<Requested> = {
  ...{ ratelimit: true, key: true, rate: true, limiter: true, atLeast: true, force: checkSwitch },
}

/**
 * The calls of the requests, in their order.
 *
 * @param names The options that each may have. Default: those of a charge.
 * @param rateOfEach Default: each request's own.
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_KEY`, `INVALID_RATE`
 */
export async function callsOf(
  requests: readonly Requested[],
  names: OptionNames = REQUEST,
  rateOfEach?: number,
): Promise<LimiterCall[]> {
  checkOption(Array.isArray(requests), 'The requests must be a list.')
  const calls: LimiterCall[] = []
  // Unlike `map`, it does not skip the holes of a list.
  for (const each of requests) {
    const request: Requested = each
    checkOptions(request, names, 'Each request')
    const { ratelimit, key, rate, limiter, force, atLeast } = request
    const handle = handleOf(ratelimit, 'Each ratelimit must be a limiter of this version of the package.')
    handle.checker.rows.namespace.onUse?.()
    const called = calledBy(handle, key, { rate: rateOfEach ?? rate, limiter, force, atLeast })
    // Awaited one by one: if a later request is refused, nobody would handle the error of an earlier promise.
    calls.push('call' in called ? called : await called)
  }
  return calls
}
