import { mustHave } from '../database/rows.ts'
import type { Params } from '../limits/algorithm.ts'
import { paramsAt, sameLimiter } from '../limits/limiter.ts'
import { numberArray } from '../sql/calls.ts'
import type { Asked } from './call.ts'

/** The numbers of the limits of calls that share a statement. */
export interface CallNumbers {
  /** Those of the first call. */
  readonly params: Params
  /** Those of each call. Undefined if all have the same limit. */
  readonly each: readonly Params[] | undefined
  /** Those that differ between the calls: their names and values. */
  readonly differing: readonly (readonly [string, string])[]
}

/** @param time A time in the calendar period to send. */
export function numbersOf(asked: readonly Asked[], time: number): CallNumbers {
  const { limiter } = mustHave(asked[0]).request
  const params = paramsAt(limiter, time)
  // This runs for each check.
  if (asked.every(({ request }) => sameLimiter(request.limiter, limiter)))
    return { params, each: undefined, differing: [] }
  const each = asked.map(({ request }) => paramsAt(request.limiter, time))
  const differing = Object.keys(params).flatMap((name) => {
    const values = each.map((own) => mustHave(own[name]))
    return values.some((value) => value !== params[name]) ? [[name, numberArray(values)] as const] : []
  })
  return { params, each, differing }
}
