import type { Limiter } from '../algorithms/algorithm.ts'
import { TOLERANCE } from '../algorithms/bucket.ts'
import { allowanceOf, type Reporting, withCrossed } from '../answers/answer.ts'
import { type Outcome, type Payment, returnedBy } from '../answers/outcome.ts'
import type { Allowed } from '../answers/results.ts'
import { crossedFrom } from '../answers/thresholds.ts'
import { onFirstUse } from '../base/on-first-use.ts'
import type { At } from '../check/bounds.ts'
import type { Checker } from '../check/checker.ts'
import { withinTimeout } from '../check/within-timeout.ts'
import { RatelimitError } from '../errors.ts'
import { callOf, checkKind, checkLimiter, checkRate } from '../options/validate.ts'
import { type Call, reservedIn } from '../runtime/call.ts'

/** The data of an estimate that are needed to settle it. */
export interface Estimate {
  /** The key as it is stored. */
  readonly key: string
  readonly paid: Payment
  /** The time from which a bucket gives nothing back, because it has filled by itself. Null for windows. */
  readonly refundableUntil: number | null
  /** When the period that paid ends under the plan that it was charged with. Null if that is unknown. */
  readonly windowEnd: number | null
  /** A call that a dry run lets pass is not charged. With a degraded answer, this is unknown. */
  readonly how: 'charged' | 'passed' | 'degraded'
  /** The capacity of its limiter. Thresholds are shares of it. */
  readonly limit: number
  /** The layout of the rows that were charged. */
  readonly layout: string
}

const COST = 'The cost'

/**
 * Checks a cost and the limit under which it is settled, which the caller has given if it `isPresent`.
 *
 * @throws RatelimitError `INVALID_RATE`, `INVALID_OPTION`, `INVALID_LIMIT`
 */
export function checkCost(
  { rows, terms }: Checker,
  actual: unknown,
  { limiter, isPresent }: Pick<Settled, 'limiter' | 'isPresent'>,
): void {
  checkLimiter(limiter)
  if (isPresent) checkKind(terms.limiter, limiter)
  const { prefix } = rows.namespace
  checkRate(actual, limiter, prefix, COST)
  if (actual < 0) {
    throw new RatelimitError('INVALID_RATE', `${COST} of ${JSON.stringify(prefix)} must be 0 or more.`)
  }
}

/**
 * Refuses to settle an estimate under the limiter's own limit if another one has paid.
 *
 * @throws RatelimitError `OTHER_PLAN`
 */
export function checkPlan(
  { layout }: Estimate,
  limiter: Limiter,
  isPresent: boolean,
  hasPlan: boolean,
): void {
  if (isPresent) return
  if (hasPlan) throw otherPlan('The reservation was made with a limiter.')
  if (limiter.stored && layout !== '' && layout !== layoutOf(limiter))
    throw otherPlan('The reservation was charged under another algorithm.')
}

function otherPlan(why: string): RatelimitError {
  return new RatelimitError(
    'OTHER_PLAN',
    `${why} Nothing was charged. Give the present limiter to settle it.`,
  )
}

/** An estimate, its actual cost, and the plan under which it is settled. */
export interface Settled {
  readonly estimate: Estimate
  readonly actual: number
  readonly limiter: Limiter
  /** Whether the caller gave the plan. Otherwise it may be outdated, and must not replace the row's state. */
  readonly isPresent: boolean
}

const late = /* @__PURE__ */ onFirstUse(() => import('./late.ts'))

/** Settles the actual cost. */
export function settle(checker: Checker, settled: Settled, tx: At): Promise<Allowed> {
  if (!mayBeLate(checker, settled)) return settleIn(checker, settled, tx)
  return withinTimeout([checker], tx, (at) => settleIn(checker, settled, at))
}

async function settleIn(checker: Checker, settled: Settled, tx: At): Promise<Allowed> {
  const corrected = await settleIfLate(checker, settled, tx)
  if (corrected) return corrected
  const outcome = await checker.decide(settlementOf(checker, settled), tx)
  return settledAnswer(outcome, settled, checker.terms.reporting)
}

/** Whether the period that paid may be over, and still be corrected. */
export function mayBeLate({ terms }: Checker, { estimate, limiter }: Settled): boolean {
  return terms.graceMs > 0 && estimate.how === 'charged' && hasPaid(limiter, estimate)
}

/**
 * Settles the actual cost in a period that has ended, within the grace time. Undefined if it does not have to.
 *
 * @param id The name of the estimate, for its entry.
 */
export async function settleIfLate(
  checker: Checker,
  settled: Settled,
  tx: At,
  id?: string,
): Promise<Allowed | undefined> {
  if (!mayBeLate(checker, settled)) return undefined
  const { settleLate } = await late()
  const paid = { windowEnd: settled.estimate.windowEnd, id }
  return settleLate(checker, settlementOf(checker, settled), paid, tx)
}

/** The answer of the call that settles an estimate. */
export function settledAnswer(outcome: Outcome, settled: Settled, reporting: Reporting): Allowed {
  const { estimate, actual } = settled
  const left = allowanceOf(outcome, reporting)
  // A call that a dry run lets pass was not charged, so nothing is given back.
  const isBelow = estimate.how !== 'passed' && actual < estimate.paid.rate
  const answer = isBelow ? { ...left, returned: returnedBy(outcome) } : left
  return settled.estimate.how === 'charged' ? withKept(answer, outcome, settled, reporting) : answer
}

/** The call that charges the missing part, or gives the rest back to the window that paid. */
export function settlementOf({ rows, terms }: Checker, settled: Settled): Call {
  const { estimate, limiter } = settled
  const { key, paid, how } = estimate
  const rate = differenceOf(settled)
  const settlement: Call = {
    ...callOf(rows.namespace.prefix, terms.limiter, key, { rate, limiter, force: true }),
    paidWindowStart: paid.windowStart,
    refundableUntil: estimate.refundableUntil,
    refusesOther: !settled.isPresent,
    reserved: how === 'charged' && hasPaid(limiter, estimate) ? -paid.rate : 0,
  }
  // The row keeps the reserved amount, so it changes even if the estimate was right.
  return reservedIn(settlement) < 0 ? { ...settlement, purpose: 'adjust' } : settlement
}

/** By how much the cost exceeds the estimate. Below 0 if some of it is given back. */
export function differenceOf({ estimate, actual, limiter }: Settled): number {
  const { paid, how } = estimate
  const unpaid = actual - paid.rate
  // A dry run does not charge a call that the limit would deny.
  if (how === 'passed') return 0
  // No refund if the charge may not have been made, or if rows of another algorithm paid.
  if (unpaid < 0 && (how === 'degraded' || !hasPaid(limiter, estimate))) return 0
  // A bucket may have paid a fraction, and the present plan may count whole units.
  return limiter.algorithm.integersOnly ? Math.ceil(unpaid - TOLERANCE) : unpaid
}

/**
 * The answer with the thresholds that a plain call for the kept part of the estimate would have crossed. A row
 * that keeps the settled amount needs no such correction.
 */
function withKept(
  settled: Allowed,
  { decision }: Outcome,
  { estimate, actual, limiter }: Settled,
  { thresholds }: Reporting,
): Allowed {
  const { algorithm } = limiter
  const { limit, paid } = estimate
  const { usedBefore, windowStart, rate } = paid
  const isOver = windowStart !== null && windowStart !== decision.state.windowStart
  if (!hasPaid(limiter, estimate) || algorithm.settled || usedBefore === null || isOver) return settled
  const to = usedBefore + Math.min(actual, rate)
  const kept = crossedFrom(limiter, limit, usedBefore, to, thresholds)
  const crossed = thresholds.filter((each) => kept.includes(each) || settled.crossed?.includes(each))
  return withCrossed(settled, crossed)
}

/** Whether rows of this limiter's algorithm were charged the estimate. */
function hasPaid(limiter: Limiter, { layout }: Estimate): boolean {
  return limiter.stored && layout === layoutOf(limiter)
}

/**
 * Identifies the algorithm of a row by the columns that it fills, in the order in which the row of a named
 * estimate has them. Empty for a limiter without rows.
 */
export function layoutOf(limiter: Limiter): string {
  return limiter.stored ? limiter.algorithm.columns.toSorted().join() : ''
}
