import type { Answered } from '../answers/answer.ts'
import type { Usage } from '../answers/results.ts'
import type { Call, Request } from '../store/call.ts'
import type { At } from './bounds.ts'
import type { LimiterCall } from './checker.ts'

/** What pays calls on a key whose rows only a read can find, because the key has several. */
export interface Funds {
  /**
   * Charges a call by itself, in a statement that many share. Undefined if the call needs more than that.
   */
  charge(call: Call, tx: At): Answered | Promise<Answered> | undefined
  /** Charges all calls of a list, or none. Some may be of others. It throws during an outage. */
  chargeAll(
    calls: readonly LimiterCall[],
    tx: At,
    ids: readonly (LimiterCall | undefined)[],
  ): Promise<Answered[]>
  /** What there is. */
  look(tx: At): Promise<Usage>
}

/** A call that funds pay. It has no row of its own, and stands for the rows where calls are published. */
export interface FundedCall extends LimiterCall {
  readonly funds: Funds
}

export function isFunded(each: Pick<LimiterCall, 'checker'>): each is FundedCall {
  return 'funds' in each
}

/** A row that a read has found. No caller has asked for it by itself. */
export interface FoundCall extends LimiterCall<Request> {
  readonly isFound: true
}

export function isFound(each: LimiterCall): each is FoundCall {
  return 'isFound' in each
}
