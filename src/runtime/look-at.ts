import type { StoredLimiter } from '../algorithms/algorithm.ts'
import type { Request } from './call.ts'

/** A call that only looks at a row, and the base of calls that change it. */
export function lookAt(key: string, limiter: StoredLimiter): Request {
  return {
    key,
    limiter,
    rate: 0,
    purpose: 'look',
    paidWindowStart: null,
    refundableUntil: null,
    within: null,
    atLeast: null,
    reserved: 0,
    refusesOther: false,
  }
}
