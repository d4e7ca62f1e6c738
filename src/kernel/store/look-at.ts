import type { StoredLimiter } from '../limits/algorithm.ts'
import type { Purpose, Request } from './call.ts'

/** A call that only looks at a row, and the base of calls that change it. */
export function lookAt(key: string, limiter: StoredLimiter): Request {
  return requestFor(key, limiter, 'look', 0)
}

/** A call of a rate. To spread a look into it would take V8 many times as long. */
export function requestFor(
  key: string,
  limiter: StoredLimiter,
  purpose: Purpose,
  rate: number,
  paidWindowStart: number | null = null,
  payer?: string,
): Request {
  return {
    key,
    limiter,
    rate,
    purpose,
    paidWindowStart,
    refundableUntil: null,
    within: null,
    atLeast: null,
    reserved: 0,
    refusesOther: false,
    payer,
  }
}
