import type { Limiter } from '../algorithms/algorithm.ts'
import type { Concurrency } from '../algorithms/concurrency.ts'
import type { Credits } from '../algorithms/credits.ts'
import { checkOptions, type OptionNames } from '../base/check-options.ts'
import type { Checker, LimiterCall } from '../check/checker.ts'
import { handles } from '../check/handles.ts'
import { callOf, checkOption, isCredits } from '../options/validate.ts'

/** One of the requests of a call for several limits. */
interface Requested {
  readonly ratelimit: { readonly prefix: string; readonly limiter: Limiter | Concurrency | Credits }
  readonly key: string
  readonly rate?: number | undefined
  readonly limiter?: Limiter | undefined
  readonly force?: boolean | undefined
}

/** A call on the credits of a key. */
export interface CreditCall {
  readonly checker: Checker
  readonly credits: Credits
  /** The key as it is stored. */
  readonly key: string
  readonly rate: number
  readonly force: boolean
}

/** One of the calls that are decided together. */
export type AnyCall = LimiterCall | CreditCall

export function isCreditCall(each: AnyCall): each is CreditCall {
  return 'credits' in each
}

/** Whether none of the calls is one on credits. */
export function areRates(calls: readonly AnyCall[]): calls is readonly LimiterCall[] {
  return !calls.some(isCreditCall)
}

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
): Promise<AnyCall[]> {
  checkOption(Array.isArray(requests), 'The requests must be a list.')
  const calls = Array.from(requests, (request: Requested) => {
    checkOptions(request, names, 'Each request')
    const { ratelimit, key } = request
    const handle = handles.get(Object(ratelimit))
    checkOption(
      handle !== undefined,
      'Each ratelimit must be a Ratelimit, and all must come from the same copy of this package.',
    )
    const { checker, hash } = handle
    const callWith = (stored: string) => anyCall(checker, request, stored, rateOfEach ?? request.rate)
    return hash ? hash(key).then(callWith) : callWith(key)
  })
  return Promise.all(calls)
}

/** The same, for calls that take no credits. */
export async function ratesOf(...asked: Parameters<typeof callsOf>): Promise<readonly LimiterCall[]> {
  const calls = await callsOf(...asked)
  checkOption(areRates(calls), 'Ratelimit.credits has no such call.')
  return calls
}

function anyCall(checker: Checker, request: Requested, key: string, rate: number | undefined): AnyCall {
  const { ratelimit, limiter, force } = request
  if (!isCredits(ratelimit.limiter))
    return { checker, call: callOf(ratelimit.prefix, ratelimit.limiter, key, { rate, limiter, force }) }
  checkOption(limiter === undefined, 'Credits take no limiter: each grant has its own terms.')
  return { checker, credits: ratelimit.limiter, key, rate: rate ?? 1, force: force ?? false }
}
