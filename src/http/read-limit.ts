import { RatelimitError } from '../errors.ts'
import type { LimitRequest } from '../ratelimit.ts'
import { checkOption, checkRate } from '../validate.ts'
import type { RouteLimit } from './options.ts'
import { type Route, ratesOf } from './routes.ts'

/** What a limit asks of a request that costs something. */
export type CostingRequest = LimitRequest & { readonly rate: number }

/** What a limit asks of a request; undefined if the request costs nothing. */
export type ReadLimit<Context> = (context: Context) => Promise<CostingRequest | undefined>

/**
 * Reads the options of a limit once.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`; of a request `INVALID_KEY` and `INVALID_RATE`.
 */
export function readLimit<Context>(
  limit: RouteLimit<Context>,
  routeOf: (context: Context) => Route,
): ReadLimit<Context> {
  const { ratelimit, key: keyOf, limiter, rate = 1 } = limit
  checkOption(typeof ratelimit?.limit === 'function', 'ratelimit must be a Ratelimit.')
  checkOption(typeof keyOf === 'function', 'key must be a function.')
  const rateOf = readRate(rate, routeOf, (cost) => {
    checkCost(cost)
    // A limit that is chosen for each request may count fractions, or not.
    if (typeof limiter !== 'function') checkRate(cost, limiter ?? ratelimit.limiter)
  })
  return async (context) => {
    const cost = await rateOf(context)
    checkCost(cost)
    if (cost === 0) return undefined
    const key = await keyOf(context)
    if (!key) {
      throw new RatelimitError('INVALID_KEY', 'The request has no key: return one, or skip the request.')
    }
    const own = typeof limiter === 'function' ? await limiter(context) : limiter
    return { ratelimit, key, rate: cost, limiter: own }
  }
}

/** A request must not give back. */
function checkCost(cost: unknown): void {
  if (typeof cost === 'number' && cost >= 0) return
  throw new RatelimitError('INVALID_RATE', 'What a request costs is a number of 0 or more.')
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
