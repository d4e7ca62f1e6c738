import type { Request } from '../../src/kernel/store/call.ts'

/** A request that takes 1, or differs from one in some fields. */
export function requestOf(own: Partial<Request> & Pick<Request, 'key' | 'limiter'>): Request {
  return {
    rate: 1,
    purpose: 'take',
    atLeast: null,
    paidWindowStart: null,
    refundableUntil: null,
    within: null,
    reserved: 0,
    refusesOther: false,
    ...own,
  }
}
