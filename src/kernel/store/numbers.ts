import { mustHave } from '../database/rows.ts'
import type { Params, StoredLimiter } from '../limits/algorithm.ts'
import { paramsAt, sameLimiter } from '../limits/limiter.ts'
import { numberArray } from '../sql/calls.ts'

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
export function numbersOf<T>(
  calls: readonly T[],
  limiterOf: (call: T) => StoredLimiter,
  time: number,
): CallNumbers {
  const limiter = limiterOf(calls[0] as T)
  const params = paramsAt(limiter, time)
  // This runs for each check.
  if (calls.every((call) => sameLimiter(limiterOf(call), limiter)))
    return { params, each: undefined, differing: [] }
  const each = calls.map((call) => paramsAt(limiterOf(call), time))
  const differing = Object.keys(params).flatMap((name) => {
    const values = each.map((own) => mustHave(own[name]))
    return values.some((value) => value !== params[name]) ? [[name, numberArray(values)] as const] : []
  })
  return { params, each, differing }
}
