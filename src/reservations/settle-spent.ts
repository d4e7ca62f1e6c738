import type { Limiter } from '../algorithms/algorithm.ts'
import { TOLERANCE } from '../algorithms/bucket.ts'
import { type Answered, allowanceOf } from '../answers/answer.ts'
import { refundableUntilOf } from '../answers/refundable.ts'
import type { Allowed, LimitResult } from '../answers/results.ts'
import type { At } from '../check/bounds.ts'
import type { LimiterCall } from '../check/checker.ts'
import { type FundedCall, isFunded, type PayingCall } from '../check/funds.ts'
import { mustHave, notAsExpected } from '../database/rows.ts'
import type { Call, Decision } from '../runtime/call.ts'
import { adjustAll } from '../several/adjust-all.ts'
import { found } from '../several/enough.ts'
import { paidByEach } from '../several/send-payers.ts'
import { withFunds } from '../several/with-funds.ts'
import { layoutOf } from './settlement.ts'

/** What was spent from several limits, in the order of the requests. */
export interface Expense {
  readonly calls: readonly LimiterCall[]
  /** How much each has paid. */
  readonly granted: readonly number[]
  readonly answered: readonly Answered[]
}

/** How an expense is settled. */
export interface Settling {
  /** The present plans. Those that the caller has not given may be outdated, and replace no row's state. */
  readonly limiters: readonly (Limiter | undefined)[]
  readonly tx: At
}

/** The answer of the `commit` and the `release` of `Ratelimit.spend`. */
export interface SettledSpending {
  /**
   * How much each limit has paid in the end, in the order of the requests. Together that is the actual cost, or
   * more if a window that paid is over, because it gives nothing back.
   */
  readonly granted: readonly number[]
  /** The answer of each limit. `returned` is how much it got back. */
  readonly results: readonly LimitResult[]
  /**
   * With a name: it was settled before with the same cost. Then nothing has changed, and `granted` has only
   * zeros.
   */
  readonly repeated?: true
}

/** Gives back what was spent above the actual cost: the last limit gets its part first. */
export async function giveBack(
  expense: Expense,
  actual: number,
  { limiters, tx }: Settling,
): Promise<SettledSpending> {
  const { calls, granted, answered } = expense
  const parts = partsToReturn(granted, sumOf(granted) - actual)
  const refunds = calls.map((each, place) =>
    isFunded(each) ? each : refundOf(expense, place, parts[place] ?? 0, limiters[place]),
  )
  const find = ({ funds }: FundedCall, place: number) =>
    funds.giveBack(answered[place]?.parts ?? [], parts[place] ?? 0, tx)
  const adjusted = mustHave(await adjustAll(refunds, find, tx))
  const returned = adjusted.map((each, place) =>
    calls[place]?.call.limiter.stored ? each.returned : (parts[place] ?? 0),
  )
  return {
    granted: granted.map((each, place) => each - (returned[place] ?? 0)),
    results: adjusted.map((each, place) => {
      const answer = 'outcome' in each ? allowanceOf(each.outcome, each.reporting) : each.answer
      return parts[place] ? { ...answer, returned: returned[place] ?? 0 } : answer
    }),
  }
}

/** The call that gives back a part of what the limit at that place has paid. */
function refundOf(
  { calls, answered }: Expense,
  place: number,
  part: number,
  limiter: Limiter | undefined,
): LimiterCall {
  const { checker, call } = calls[place] as LimiterCall
  const present = presentOf(call, limiter)
  // Rows of another algorithm have not paid.
  if (part === 0 || layoutOf(present.limiter) !== layoutOf(call.limiter))
    return { checker, call: { ...present, rate: 0, purpose: 'look' } }
  const { answer, paid } = answered[place] as Answered
  const refundableUntil = refundableUntilOf(call.limiter, answer)
  const { windowStart: paidWindowStart } = paid
  return { checker, call: { ...present, rate: -part, paidWindowStart, refundableUntil, purpose: 'adjust' } }
}

/** The part of the amount that each gives back, beginning with the last one. */
export function partsToReturn(granted: readonly number[], amount: number): readonly number[] {
  let rest = amount
  const parts = granted.toReversed().map((each) => {
    const part = Math.min(each, rest)
    rest -= part
    return part
  })
  return parts.toReversed()
}

/**
 * Takes what the actual cost is above what was spent: from the limits in their order, and what they do not have
 * as a debt of the one at the place `debtor`.
 *
 * @param names Calls that look at the estimates of a name.
 */
export async function takeMore(
  { calls, granted }: Pick<Expense, 'calls' | 'granted'>,
  actual: number,
  debtor: number,
  { limiters, tx }: Settling,
  names: readonly LimiterCall[] = [],
): Promise<SettledSpending> {
  const rate = missingOf({ calls, granted }, actual, limiters)
  const charges = calls.map((each, place) =>
    isFunded(each) ? each : chargeOf(each, rate, limiters[place], place === debtor),
  )
  const find = ({ funds }: FundedCall, place: number) =>
    funds.take({ rate, least: rate, lacking: place === debtor ? 'owed' : 'left to others' }, tx)
  const beside = { ids: names, shared: { rate, least: rate } }
  const { payers, ...sent } = await withFunds(charges, find, tx, () => beside)
  if (!sent.isOver) throw notAsExpected('contradicts itself')
  const shares = paidByEach(payers, sent)
  const results = payers.map((payer, place) => {
    const { call, purse } = payer
    const decisions = sent.decisionsOf(payer)
    if (purse) return purse.answer(decisions, sent.fate).answer
    const decision = decisions[0] ?? found(sent.asked.unlimited, call).decision
    return answerToCharge(call, decision, shares[place] ?? 0)
  })
  return { granted: granted.map((each, place) => each + (shares[place] ?? 0)), results }
}

/** How much more than what was spent has to be taken. */
function missingOf(
  { calls, granted }: Pick<Expense, 'calls' | 'granted'>,
  actual: number,
  limiters: Settling['limiters'],
): number {
  const missing = actual - sumOf(granted)
  // A bucket may have paid a fraction, and a present plan may count whole units.
  const isWhole = calls.some(
    ({ call }, place) => presentOf(call, limiters[place]).limiter.algorithm.integersOnly,
  )
  return isWhole ? Math.ceil(missing - TOLERANCE) : missing
}

/** The call that takes more. Like a settlement it is never denied, not even if the key is blocked. */
function chargeOf(
  { checker, call }: LimiterCall,
  rate: number,
  limiter: Limiter | undefined,
  isDebtor: boolean,
): PayingCall {
  const charge = { checker, call: { ...presentOf(call, limiter), rate, purpose: 'adjust' } } as const
  return isDebtor ? { ...charge, pays: 'the rest' } : charge
}

/** The answer to the call that has taken a share of it. */
function answerToCharge({ checker, call }: LimiterCall, snapshot: Decision, share: number): Allowed {
  const decision = { ...snapshot, granted: 1, isNew: false }
  const charged: Call = { ...call, rate: share, purpose: share > 0 ? 'adjust' : 'look' }
  return allowanceOf({ call: charged, decision, place: 0 }, checker.terms.reporting)
}

/** The call under the present plan. For an old plan no row of another algorithm or period begins again. */
function presentOf(call: Call, limiter: Limiter | undefined): Call {
  return { ...call, limiter: limiter ?? call.limiter, refusesOther: limiter === undefined }
}

export function sumOf(amounts: readonly number[]): number {
  return amounts.reduce((sum, each) => sum + each, 0)
}
