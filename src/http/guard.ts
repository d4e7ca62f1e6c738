import { unavailable } from '../kernel/answers/made.ts'
import { checkOptions, type OptionNames } from '../kernel/base/check-options.ts'
import { quietly, RatelimitError } from '../kernel/errors.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { type ChargedRequest, charge, reserve } from './charge.ts'
import { type Check, headersOfAll, retryAfter } from './headers.ts'
import {
  type Eventually,
  type GuardOptions,
  type RequestAnswer,
  type RequestDenied,
  ROUTE_LIMIT_NAMES,
  type RouteLimit,
} from './options.ts'
import { type Policy, tightest } from './policy.ts'
import { type Problem, problemOf } from './problem.ts'
import { type CostingRequest, limitOf, type ReadRequest, readLimit } from './read-limit.ts'
import type { Route } from './routes.ts'
import { type RateLimitHeaders, readStandards } from './standards.ts'
import { isContended } from './unavailable.ts'

/** The request may go on. */
export interface Passed {
  readonly success: true
  /** Undefined if no limit was checked. */
  readonly answer: RequestAnswer | undefined
  readonly headers: RateLimitHeaders
  /**
   * To be called when the request is over. It gives back a request that does not count, and settles one that
   * counts. If `hasFailed` throws, the request stays charged. It never rejects.
   */
  settle(hasFailed: () => Eventually<boolean>): Promise<void>
}

/** The request is denied. Answer it with the problem. */
export interface Refused {
  readonly success: false
  readonly answer: RequestDenied
  readonly headers: RateLimitHeaders
  readonly problem: Problem
}

/** Decides on one request after another. */
export type Guard<Context> = (context: Context) => Promise<Passed | Refused>

/**
 * The core of every adapter.
 *
 * @param routeOf The route of a request, for tables of rates.
 * @param names The names of the adapter's options.
 * @param skipByDefault The requests that pass if the options have no `skip`.
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`. The guard throws `INVALID_KEY`, `INVALID_RATE`, the
 * errors of the application's functions, and by `onError` the errors of `Ratelimit.limit`.
 */
export function guardOf<Context>(
  options: GuardOptions<Context>,
  routeOf: (context: Context) => Route,
  names: OptionNames,
  skipByDefault?: (context: Context) => boolean,
): Guard<Context> {
  checkOptions(options, names)
  const { skip = skipByDefault, count = 'all', once, headers: standard = 'draft-8', onError } = options
  const asGiven = limitsOf(options)
  const limits = asGiven.map((limit) => readLimit(limit, routeOf))
  checkOption(
    count === 'failures' || asGiven.every(({ resetOnSuccess }) => !resetOnSuccess),
    "resetOnSuccess needs count: 'failures'.",
  )
  checkOption(
    once === undefined || count === 'all',
    "once needs count: 'all': a request that was given back would be free when it is sent again.",
  )
  if (standard !== false) readStandards(standard)
  const take = count === 'all' ? charge : reserve

  return async (context) => {
    const isSkipped = (await skip?.(context)) ?? false
    const asked = isSkipped ? [] : await Promise.all(limits.map((limit) => limit(context)))
    const read = asked.filter((each) => each !== undefined)
    const requests = read.map(({ request }) => request)
    const id = requests.length > 0 ? await once?.(context) : undefined
    const charged = await take(requests, id).catch(async (error: unknown): Promise<ChargedRequest> => {
      const verdict = isMistake(error) ? 'throw' : await onError?.(error, context)
      if (verdict === 'allow' && !isContended(error)) return { results: [] }
      if (verdict === 'allow' || verdict === 'deny') {
        return { results: requests.map((request) => unavailable(policyOf(request).limiter)) }
      }
      // An unknown verdict must not let requests pass.
      throw error
    })
    const { results, commit, release } = charged
    const [first, ...others] = results
    if (!first) return { success: true, answer: undefined, headers: {}, settle: async () => {} }

    const shown = tightest([first, ...others])
    const checks = results.map(
      (result, place): Check => [result, policyOf(requests[place] as CostingRequest)],
    )
    const headers = standard ? headersOfAll(checks, shown, { standard }) : retryAfter(shown)
    if (!shown.success) {
      const violated = checks.flatMap(([{ success }, { prefix }]) => (success ? [] : [prefix]))
      return { success: false, answer: { ...shown, results }, headers, problem: problemOf(shown, violated) }
    }
    const settleBy = async (hasFailed: () => Eventually<boolean>) => {
      let isCounted = true
      try {
        isCounted = Boolean(await hasFailed()) === (count === 'failures')
      } finally {
        await (isCounted ? commit?.() : release?.())
      }
      if (!isCounted) await resetAll(read)
    }
    const settle = async (hasFailed: () => Eventually<boolean>) => {
      if (count === 'all') return
      const settled = settleBy(hasFailed).catch((error: unknown) => onError?.(error, context))
      // The response has been sent, so nothing can handle the error.
      await quietly(() => settled)
    }
    return { success: true, answer: { ...shown, results }, headers, settle }
  }
}

/** Makes the limits full again that a success resets. */
async function resetAll(read: readonly ReadRequest[]): Promise<void> {
  for (const { request, resetOnSuccess } of read) {
    const { ratelimit, key, limiter } = request
    if (resetOnSuccess && 'resetUsedTokens' in ratelimit) await ratelimit.resetUsedTokens(key, { limiter })
  }
}

/** The list of limits. Options without `limits` are one limit. */
function limitsOf<Context>(options: GuardOptions<Context>): readonly RouteLimit<Context>[] {
  if (options.limits === undefined) return [options]
  const { limits, ratelimit, key, limiter, rate, resetOnSuccess } = options
  checkOption(Array.isArray(limits) && limits.length > 0, 'limits must be a list of at least one limit.')
  checkOption(
    [ratelimit, key, limiter, rate, resetOnSuccess].every((own) => own === undefined),
    'With limits, give ratelimit, key, limiter and rate to each of the limits.',
  )
  for (const limit of limits) checkOptions(limit, ROUTE_LIMIT_NAMES, 'Each limit')
  return limits
}

function isMistake(error: unknown): boolean {
  return error instanceof RatelimitError && error.code.startsWith('INVALID_')
}

function policyOf({ ratelimit, limiter = limitOf(ratelimit) }: CostingRequest): Policy {
  return { prefix: ratelimit.prefix, limiter }
}
