import { onceFor } from '../base/once.ts'
import { mustHave } from '../database/rows.ts'
import type { AnyAlgorithm, Params, StoredLimiter } from '../limits/algorithm.ts'
import { paramsAt, sameLimiter } from '../limits/limiter.ts'
import { numberArray } from '../sql/calls.ts'

/** The numbers of the limits of calls that share a statement. */
export interface CallNumbers {
  /** Those of the first call. */
  readonly params: Params
  /** Those of the call at a place. */
  at(place: number): Params
  /** Those of which each call sends its own: their names and values. */
  readonly differing: readonly (readonly [string, string])[]
}

/**
 * The names of the numbers in which limits of an algorithm have differed. A statement has a text for each set
 * of names. Names are only added, so that there are few texts, however the limits differ.
 */
const namesOf = /* @__PURE__ */ onceFor((_: AnyAlgorithm) => new Set<string>())

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
    return { params, at: () => params, differing: [] }
  const each = calls.map((call) => paramsAt(limiterOf(call), time))
  const names = namesOf(limiter.algorithm)
  for (const name of Object.keys(params)) if (each.some((own) => own[name] !== params[name])) names.add(name)
  const valuesOf = (name: string) => numberArray(each.map((own) => mustHave(own[name])))
  // In the order of the limiter, so that every process has the same text for the same names.
  const differing = Object.keys(params).filter((name) => names.has(name))
  return {
    params,
    at: (place) => mustHave(each[place]),
    differing: differing.map((name) => [name, valuesOf(name)] as const),
  }
}
