import type { Value } from '../database/statement.ts'
import { numberArray, textArray } from '../sql/calls.ts'
import type { Asked, Purpose } from './call.ts'

// The values that calls send to their statements.

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
