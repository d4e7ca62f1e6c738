import { kindOf } from '../kernel/base/kind-of.ts'
import { handleOf } from '../kernel/engine/handles.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'
import { checkOption, checkRate, checkTakesLimiter, isPrepaid } from '../kernel/options/validate.ts'
import type { CreditRequest, LimitRequest } from '../limit-all.ts'
import type { RouteLimit } from './options.ts'
import { type Route, ratesOf } from './routes.ts'

/** The request for a limit, with its cost. */
export type CostingRequest = (LimitRequest | CreditRequest) & { readonly rate: number }

/** Makes the request for a limit. Undefined if the request costs nothing. */
export type ReadLimit<Context> = (context: Context) => Promise<ReadRequest | undefined>

/** The request for a limit, and whether a success makes the limit full again. */
export interface ReadRequest {
  readonly request: CostingRequest
  readonly resetOnSuccess: boolean
}

/**
 * Reads the options of a limit once.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`; for a request `INVALID_KEY`, `INVALID_RATE`.
 */
export function readLimit<Context>(
  limit: RouteLimit<Context>,
  routeOf: (context: Context) => Route,
): ReadLimit<Context> {
  const { ratelimit, key: keyOf, limiter, rate = 1, resetOnSuccess = false } = limit
  const own = limitOf(ratelimit)
  if (limiter !== undefined) checkTakesLimiter(own)
  checkOption(typeof keyOf === 'function', 'key must be a function.')
  checkOption(
    !resetOnSuccess || !isPrepaid(own),
    'resetOnSuccess cannot be combined with credits, which cannot be reset.',
  )
  const rateOf = readRate(rate, routeOf, (cost) => {
    checkCost(cost, ratelimit.prefix)
    // If the limit is chosen for each request, it is unknown whether it counts fractions.
    if (typeof limiter !== 'function') checkRate(cost, limiter ?? own, ratelimit.prefix)
  })
  return async (context) => {
    const cost = await rateOf(context)
    checkCost(cost, ratelimit.prefix)
    if (cost === 0) return undefined
    const key = await keyOf(context)
    if (!key) {
      throw new RatelimitError(
        'INVALID_KEY',
        `The request has no key for ${JSON.stringify(ratelimit.prefix)}: the function \`key\` gave ${kindOf(key)}. ` +
          'Return a key, or skip the request.',
      )
    }
    const plan = typeof limiter === 'function' ? await limiter(context) : limiter
    if (!('dated' in ratelimit))
      return { request: { ratelimit, key, rate: cost, limiter: plan }, resetOnSuccess }
    if (plan !== undefined) checkTakesLimiter(own)
    return { request: { ratelimit, key, rate: cost }, resetOnSuccess }
  }
}

/** The limit of calls without one of their own. */
export function limitOf(ratelimit: object): Limiter {
  return handleOf(ratelimit, 'ratelimit must be a Ratelimit or Credits.').checker.terms.limiter
}

/** Refuses negative costs, because a request must not give back. */
function checkCost(cost: unknown, prefix: string): void {
  if (typeof cost === 'number' && cost >= 0) return
  throw new RatelimitError(
    'INVALID_RATE',
    `The cost of a request for ${JSON.stringify(prefix)} must be a number of 0 or more, and not ${kindOf(cost)}.`,
  )
}

function readRate<Context>(
  rate: NonNullable<RouteLimit<Context>['rate']>,
  routeOf: (context: Context) => Route,
  check: (cost: unknown) => void,
): (context: Context) => number | Promise<number> {
  if (typeof rate === 'function') return rate
  if (typeof rate !== 'object' || rate === null) {
    check(rate)
    return () => rate
  }
  for (const cost of Object.values(rate)) check(cost)
  const rates = ratesOf(rate)
  return (context) => rates(routeOf(context))
}
