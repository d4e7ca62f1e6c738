import type { Answered, PaidPart } from '../kernel/answers/answer.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { type FoundCall, type FundedCall, type Funds, isFunded } from '../kernel/engine/funds.ts'
import type { Source } from '../kernel/lists/shares.ts'
import type { Pays } from '../kernel/sql/list-row.ts'
import type { Decision, Request } from '../kernel/store/call.ts'
import type { Entry } from '../kernel/store/entry.ts'

// What pays a call whose rows only a read can find, because a key has several.

/** A row that takes part in a call. */
export interface PayingCall extends LimiterCall {
  /** What it pays of a rate that rows pay together. Default: what it has. */
  readonly pays?: Pays | undefined
  /** Unix milliseconds from which it has nothing. Default: never. */
  readonly endsAt?: number | undefined
  /** Whether its list is not done if the window that paid is over. */
  readonly inTime?: boolean
  /** The kind of its entry. Default: by the rate. */
  readonly kind?: Entry['kind']
}

/** What became of a list. */
export type ListStatus = 'charged' | 'repeated' | 'not charged'

/** A row that a read has found. */
export interface FoundRow extends PayingCall, FoundCall {
  readonly call: Request
}

/** The rows that a read has found for a call. They may have less by the time they are locked. */
export interface Purse {
  readonly rows: readonly FoundRow[]
  /** The rate that the rows pay together. Undefined if each of them has a rate of its own. */
  readonly rate: number | undefined
  /** What there was to take when it was read. */
  readonly has: number
  /** What else was read that can pay, if some of the rows end before. */
  others?(): readonly Source[]
  /**
   * The answer, by the decisions on its rows.
   *
   * @param blockedUntil Until when a block denies the call.
   */
  answer(decisions: readonly Decision[], status: ListStatus, blockedUntil?: number): Answered
  /**
   * What its rows had when they were locked, if that was too little. If a later read finds more, it is worth
   * trying again. Less than anything if it is worth that anyway: the call is never denied, or may take less.
   */
  lacked(decisions: readonly Decision[]): number | undefined
}

/** How a call takes from funds. */
export interface FundsTaking {
  /** The rate. 0 looks, and a negative rate gives back. */
  readonly rate: number
  /** The least that is worth taking. */
  readonly least: number
  /** The rows that have paid, and get it back: the last one first. Default: those from which was taken last. */
  readonly parts?: readonly PaidPart[] | undefined
  /** What happens if there is too little: it is denied, becomes a debt, or others of its group pay the rest. */
  readonly lacking: 'denied' | 'owed' | 'left to others'
  /** Whether all is read that can pay, because the rows may end before a block does. Default: false. */
  readonly mayBeBlocked?: boolean
  /** Whether it charges an estimate, or settles one. */
  readonly as?: Estimating | undefined
}

/** The kind of the entries of an estimate. Other calls charge, or give back. */
type Estimating = 'reserve' | 'settle'

/** What pays calls on one key. Each call of these reads, without a lock, which rows take part. */
export interface PayingFunds extends Funds {
  /** The call that gives an amount back to the one row that has paid. Undefined if it needs more than that. */
  refund(parts: readonly PaidPart[], amount: number): LimiterCall | undefined
  take(taking: FundsTaking, tx: At): Promise<Purse>
  /** A look at a row that has paid. */
  payerOf(part: PaidPart): Request
}

/** A call that funds pay. */
export interface PaidByFunds extends FundedCall {
  readonly funds: PayingFunds
}

export function isPaidByFunds(each: Pick<LimiterCall, 'checker'>): each is PaidByFunds {
  return isFunded(each)
}
