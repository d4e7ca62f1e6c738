import { checkOptions, type OptionNames } from '../base/check-options.ts'
import type { LimiterCall } from '../engine/checker.ts'
import { FUNDED_LIMITER } from '../engine/funds.ts'
import { type Handle, handleOf } from '../engine/handles.ts'
import type { Requested } from '../options/calls.ts'
import { callOf, checkOption } from '../options/validate.ts'

/**
 * The calls of the requests, in their order.
 *
 * @param rateOfEach Default: each request's own.
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_KEY`, `INVALID_RATE`
 */
export async function callsOf(
  requests: readonly Requested[],
  names: OptionNames,
  rateOfEach?: number,
): Promise<LimiterCall[]> {
  checkOption(Array.isArray(requests), 'The requests must be a list.')
  const calls: (LimiterCall | Promise<LimiterCall>)[] = []
  // Unlike `map`, it does not skip the holes of a list.
  for (const each of requests) {
    const request: Requested = each
    checkOptions(request, names, 'Each request')
    const { ratelimit, key } = request
    const handle = handleOf(ratelimit, 'Each ratelimit must be a Ratelimit of this version of the package.')
    const { rows, terms } = handle.checker
    rows.namespace.onUse?.()
    const callWith = (stored: string) => callOn(handle, request, stored, rateOfEach ?? request.rate)
    calls.push(terms.hash ? terms.hash(key).then(callWith) : callWith(key))
  }
  return calls.every((each) => 'call' in each) ? calls : Promise.all(calls)
}

function callOn(
  { checker, funded }: Handle,
  { ratelimit, limiter: plan, force, atLeast }: Requested,
  key: string,
  rate: number | undefined,
): LimiterCall | Promise<LimiterCall> {
  const { prefix, limiter } = ratelimit
  const options = { rate, force, atLeast, limiter: plan }
  if (!funded) return { checker, call: callOf(prefix, limiter, key, options) }
  checkOption(plan === undefined, FUNDED_LIMITER)
  return funded(key, options)
}
