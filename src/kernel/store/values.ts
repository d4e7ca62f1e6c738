import { onceFor } from '../base/once.ts'
import { mustHave } from '../database/rows.ts'
import type { Value } from '../database/statement.ts'
import type { AnyAlgorithm, Params, StoredLimiter } from '../limits/algorithm.ts'
import { paramsAt, sameLimiter } from '../limits/limiter.ts'
import { numberArray, textArray } from '../sql/calls.ts'
import type { Asked, Purpose } from './call.ts'

// The values that calls send to their statements, and the numbers of their limits.

/** Whether one of the calls may take less than its rate. This runs for each check. */
export function takesLess(asked: readonly Asked[]): boolean {
  for (const { request } of asked) if (request.atLeast !== null) return true
  return false
}

export function oneValues([one]: readonly Asked[]): Record<string, Value> {
  const { request, calls } = one as Asked
  return {
    key: request.key,
    rate: divisible(request.rate),
    calls: calls.length,
    atLeast: request.atLeast,
    paidWindowStart: request.paidWindowStart,
    refundableUntil: request.refundableUntil,
    within: request.within,
    reserved: request.reserved,
  }
}

/** The values that calls of the purpose have in addition. */
function moreValues(purpose: Purpose) {
  if (typeof purpose === 'object') return purpose.sends
  return purpose === 'adjust' ? ADJUSTING : NO_MORE
}

const ADJUSTING = ['paidWindowStart', 'refundableUntil', 'reserved'] as const
const NO_MORE = [] as const

export function manyValues(asked: readonly Asked[]): Record<string, Value> {
  const keys: string[] = []
  const rates: number[] = []
  const calls: number[] = []
  for (const { request, calls: equal } of asked) {
    keys.push(request.key)
    rates.push(divisible(request.rate))
    calls.push(equal.length)
  }
  const values: Record<string, Value> = {
    key: textArray(keys),
    rate: numberArray(rates),
    calls: numberArray(calls),
  }
  const { purpose } = (asked[0] as Asked).request
  // This runs for each check, and only some need these values.
  if (takesLess(asked)) values['atLeast'] = numberArray(asked.map(({ request }) => request.atLeast))
  for (const name of moreValues(purpose)) {
    values[name] = numberArray(asked.map(({ request }) => request[name]))
  }
  return values
}

/** Values for new rows: no window has paid, and no estimate waits to be settled. */
export function madeValues(asked: readonly Asked[]): Record<string, Value> {
  const values = manyValues(asked)
  if (asked[0]?.request.purpose !== 'adjust') return values
  return { ...values, paidWindowStart: null, refundableUntil: null, reserved: 0 }
}

/**
 * A division by a smaller rate would overflow. Smaller rates are far below the tolerance, so they can be
 * raised.
 */
const MIN_RATE = 1e-200

function divisible(rate: number): number {
  return rate > 0 && rate < MIN_RATE ? MIN_RATE : rate
}

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
