import { allowanceOf } from '../kernel/answers/answer.ts'
import type { Outcome } from '../kernel/answers/outcome.ts'
import type { Allowed } from '../kernel/answers/results.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { found } from '../kernel/lists/enough.ts'
import { partsOf } from '../kernel/lists/parts.ts'
import type { Decision } from '../kernel/store/call.ts'
import { isPaidByFunds, type PaidByFunds, type PayingCall, type Purse } from './funds.ts'
import { type SentPayer, type SentPayers, sharesIn } from './send-payers.ts'
import { differenceOf, mayBeLate, type Settled, settledAnswer, settlementOf } from './settlement.ts'
import { withFunds } from './with-funds.ts'

/** What one cost is above the estimates. The limits pay it in their order. */
export interface Missing {
  readonly rate: number
  /** The place of the limit that owes what they do not have together. */
  readonly debtor: number
}

/** The answers of a list of settlements. */
export interface SettledList {
  readonly answers: readonly Allowed[]
  /** What each has paid of what was missing. */
  readonly shares?: readonly number[]
}

/** Nothing was settled, because periods that paid are over. */
export interface TooLate {
  /** What was found of each limit. Undefined for limits without a row, and for funds. */
  readonly looks: readonly (Decision | undefined)[]
}

/** Estimates that are settled together. */
export interface Together {
  readonly settled: readonly Settled[]
  readonly missing: Missing | undefined
  /** The calls that close the rows of the estimates. */
  readonly closings: readonly LimiterCall[]
}

/**
 * Settles estimates in one statement, apart from the reads that find rows of funds.
 *
 * @returns Undefined if one of their rows was closed before.
 */
export async function settleList(
  { settled, missing, closings }: Together,
  tx: At,
): Promise<SettledList | TooLate | undefined> {
  const calls = settled.map((each, place) => callFor(each, place, missing))
  const find = (_: PaidByFunds, at: At, place: number) =>
    purseFor(settled[place] as Settled, place, missing, at)
  const shared = missing && { rate: missing.rate, least: missing.rate }
  const sent = await withFunds(calls, find, tx, { ids: closings, shared })
  if (sent.status === 'repeated') return undefined
  const { payers } = sent
  if (sent.status === 'not charged')
    return { looks: payers.map(({ purse, decisions }) => (purse ? undefined : decisions[0])) }
  const shares = missing ? sharesIn(missing.rate, payers) : payers.map(() => 0)
  const paid = settled.map((each, place) => ({ ...each, actual: each.actual + (shares[place] as number) }))
  return { answers: payers.map((_, place) => answerAt(place, paid, sent)), shares }
}

/** The call that settles an estimate, or that also pays a part of what is missing. It is never denied. */
function callFor(settled: Settled, place: number, missing: Missing | undefined): PayingCall {
  const { each } = settled
  if (isPaidByFunds(each)) return { ...each, call: { ...each.call, purpose: 'adjust' } }
  const own = { checker: each.checker, call: settlementOf(settled), inTime: mayBeLate(settled) }
  if (!missing) return own
  const { rate, debtor } = missing
  const paying = { ...own, call: { ...own.call, rate, purpose: 'adjust' }, kind: 'charge' } as const
  return place === debtor ? { ...paying, pays: 'rest as debt' } : paying
}

/** The rows of funds that give back what was not needed, or pay what is missing. */
function purseFor(settled: Settled, place: number, missing: Missing | undefined, tx: At): Promise<Purse> {
  const { each, isReserved, parts } = settled
  const { funds } = each as PaidByFunds
  if (missing) {
    const { rate, debtor } = missing
    return funds.take({ rate, least: rate, lacking: place === debtor ? 'owed' : 'left to others' }, tx)
  }
  const as = isReserved ? 'settle' : undefined
  const rate = differenceOf(settled)
  return funds.take({ rate, least: rate, lacking: 'owed', parts, as }, tx)
}

function answerAt(place: number, settled: readonly Settled[], sent: SentPayers): Allowed {
  const { payers } = sent
  const own = settled[place] as Settled
  const { call, purse, decisions } = payers[place] as SentPayer
  if (purse) return purse.answer(decisions, sent.status).answer as Allowed
  const { rowOf, unlimited } = sent.asked
  const rowIn = ({ rows: [first = call] }: SentPayer) => rowOf.get(first)
  const row = rowIn(payers[place] as SentPayer)
  if (!row) return settledAnswer(found(unlimited, call), own, call.checker.terms.reporting)
  const outcome = partsOf(row, found(sent.found.looks, row)).at(-1) as Outcome
  const ofRow = settled.filter((_, other) => rowIn(payers[other] as SentPayer) === row)
  if (ofRow[0] === own) return settledAnswer(outcome, sumOfSettled(ofRow), row.reporting)
  // The first one for a row has reported the crossed thresholds, the returned amount and the ended period.
  const decision = { ...outcome.decision, ended: undefined }
  const left = allowanceOf({ ...outcome, decision }, { ...row.reporting, thresholds: [] })
  return own.actual < own.paid.rate ? { ...left, returned: 0 } : left
}

/** The sum of the settlements of estimates for one row. */
function sumOfSettled(settled: readonly Settled[]): Settled {
  const [first] = settled as [Settled]
  const rate = settled.reduce((sum, { paid }) => sum + paid.rate, 0)
  const actual = settled.reduce((sum, each) => sum + each.actual, 0)
  return { ...first, actual, paid: { ...first.paid, rate } }
}
