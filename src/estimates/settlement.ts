import { type Answered, allowanceOf, type PaidPart, withCrossed } from '../kernel/answers/answer.ts'
import { type Outcome, type Payment, returnedBy } from '../kernel/answers/outcome.ts'
import { refundableUntilOf, windowEndOf } from '../kernel/answers/refundable.ts'
import type { Allowed } from '../kernel/answers/results.ts'
import { crossedFrom, type ReportedFacts } from '../kernel/answers/thresholds.ts'
import { onceFor } from '../kernel/base/once.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { AnyAlgorithm, Limiter } from '../kernel/limits/algorithm.ts'
import { TOLERANCE } from '../kernel/limits/bucket.ts'
import { hasPeriods } from '../kernel/limits/limiter.ts'
import { callOf } from '../kernel/options/validate.ts'
import { type Call, type Decision, reservedIn } from '../kernel/store/call.ts'

// The arithmetic of settling the estimate of one limit.

/** What a limit was charged as an estimate, and what is needed to settle it. */
export interface Charged {
  /** The call that was charged. In another process: a call on the same key. */
  readonly each: LimiterCall
  readonly paid: Payment
  /** What rows of funds have paid, in the order of paying. */
  readonly parts: readonly PaidPart[]
  /** The time from which a bucket gives nothing back, because it has filled by itself. Null for windows. */
  readonly refundableUntil: number | null
  /** When the period that paid ends under the plan that it was charged with. Null if that is unknown. */
  readonly windowEnd: number | null
  /**
   * A call that a dry run lets pass is not charged. With a degraded answer, this is unknown. `'over'` if the
   * period that was charged is over, and was corrected, or cannot be.
   */
  readonly how: 'charged' | 'dry run' | 'degraded' | 'over'
  /** Whether it is reserved until it is settled. What `spend` takes without a name counts as a cost at once. */
  readonly isReserved: boolean
  /** The layout of the rows that were charged. */
  readonly layout: string
  /** Whether it was charged with a `limiter` that this process does not know. */
  readonly needsPlan: boolean
  /** The key of its row, if it has a name. */
  readonly row: string | undefined
}

/** An estimate, its actual cost, and the plan under which it is settled. */
export interface Settled extends Charged {
  readonly actual: number
  readonly limiter: Limiter
  /** Whether the caller gave the plan. Otherwise it may be outdated, and must not replace the row's state. */
  readonly isPresent: boolean
}

/** What a call has charged, by its answer. */
export function chargedBy(
  each: LimiterCall,
  { answer, paid, parts = [] }: Answered,
  isReserved: boolean,
): Charged {
  const { limiter } = each.call
  const isDryRun = answer.success && answer.wouldDeny
  return {
    each,
    paid,
    parts,
    refundableUntil: refundableUntilOf(limiter, answer),
    windowEnd: windowEndOf(limiter, paid),
    how: isDryRun ? 'dry run' : answer.degraded ? 'degraded' : 'charged',
    isReserved,
    layout: layoutOf(limiter),
    needsPlan: false,
    row: undefined,
  }
}

/**
 * The estimate with its cost, under the present plan if that is given.
 *
 * @throws RatelimitError `OTHER_PLAN` if another plan than the limiter's own has paid.
 */
export function withCost(charged: Charged, actual: number, present: Limiter | undefined): Settled {
  if (present) return { actual, limiter: present, isPresent: true, ...charged }
  const { needsPlan, layout } = charged
  const { limiter } = charged.each.call
  if (needsPlan) throw planChanged('The reservation was made with a limiter.')
  if (limiter.stored && layout !== '' && layout !== layoutOf(limiter))
    throw planChanged('The reservation was charged under another algorithm.')
  return { actual, limiter, isPresent: false, ...charged }
}

function planChanged(why: string): RatelimitError {
  return new RatelimitError(
    'OTHER_PLAN',
    `${why} Nothing was charged. Give the present limiter to settle it.`,
  )
}

/** The answer of the call that settles an estimate. */
export function settledAnswer(outcome: Outcome, settled: Settled, reporting: ReportedFacts): Allowed {
  const { how, paid, actual } = settled
  const left = allowanceOf(outcome, reporting)
  // A call that a dry run lets pass was not charged, so nothing is given back.
  const isBelow = how !== 'dry run' && actual < paid.rate
  // V8 takes twenty times as long to add a property after a spread.
  const answer = isBelow ? { returned: returnedBy(outcome), ...left } : left
  return how === 'charged' ? withKept(answer, outcome, settled, reporting) : answer
}

/** The call that charges the missing part, or gives the rest back to the window that paid. */
export function settlementOf(settled: Settled): Call {
  const { each, limiter, paid, how, refundableUntil, isReserved } = settled
  const { rows, terms } = each.checker
  const rate = differenceOf(settled)
  const settlement: Call = {
    ...callOf(rows.namespace.prefix, terms.limiter, each.call.key, { rate, limiter, force: true }),
    paidWindowStart: paid.windowStart,
    refundableUntil,
    refusesOther: !settled.isPresent,
    reserved: isReserved && how === 'charged' && hasPaid(settled) ? -paid.rate : 0,
  }
  // The row keeps the reserved amount, so it changes even if the estimate was right.
  return reservedIn(settlement) < 0 ? { ...settlement, purpose: 'adjust' } : settlement
}

/** By how much the cost exceeds the estimate. Below 0 if some of it is given back. */
export function differenceOf(settled: Settled): number {
  const { paid, how, actual, limiter } = settled
  const unpaid = actual - paid.rate
  // A dry run does not charge a call that the limit would deny.
  if (how === 'dry run') return 0
  // No refund if the charge may not have been made, its period is over, or rows of another algorithm paid.
  if (unpaid < 0 && (how !== 'charged' || !hasPaid(settled))) return 0
  return limiter.algorithm.integersOnly ? wholeOf(unpaid) : unpaid
}

/** A bucket may have paid a fraction, and the present plan may count whole units. */
export function wholeOf(unpaid: number): number {
  return Math.ceil(unpaid - TOLERANCE)
}

/**
 * The answer with the thresholds that a plain call for the kept part of the estimate would have crossed. A row
 * that keeps the settled amount needs no such correction.
 */
function withKept(
  answer: Allowed,
  { decision }: Outcome,
  settled: Settled,
  { thresholds }: ReportedFacts,
): Allowed {
  const { each, paid, actual, limiter } = settled
  const { usedBefore, windowStart, rate } = paid
  const isOver = windowStart !== null && windowStart !== decision.state.windowStart
  if (!hasPaid(settled) || limiter.algorithm.settled || usedBefore === null || isOver) return answer
  const to = usedBefore + Math.min(actual, rate)
  const kept = crossedFrom(limiter, each.call.limiter.limit, usedBefore, to, thresholds)
  const crossed = thresholds.filter((each) => kept.includes(each) || answer.crossed?.includes(each))
  return withCrossed(answer, crossed)
}

/** Whether the period that paid may be over, and still be corrected. */
export function mayBeLate(settled: Settled): boolean {
  const { each, paid, how, limiter } = settled
  const isGiven = each.checker.terms.graceMs > 0 && how === 'charged'
  return isGiven && hasPaid(settled) && hasPeriods(limiter) && paid.windowStart !== null
}

/** Whether the key has another period than the one that paid. */
export function isTooLate(settled: Settled, look: Decision | undefined): look is Decision {
  const { windowStart } = settled.paid
  return mayBeLate(settled) && look !== undefined && look.state.windowStart !== windowStart
}

/** The settlement without the period that paid: nothing is given back, and what was too little is charged. */
export function withoutPeriod(settled: Settled): Settled {
  return { ...settled, how: 'over' }
}

/** Whether rows of the plan's algorithm were charged the estimate. */
function hasPaid({ limiter, layout }: Settled): boolean {
  return limiter.stored && layout === layoutOf(limiter)
}

/**
 * Identifies the algorithm of a row by the columns that it fills, in the order in which the row of a named
 * estimate has them. Empty for a limiter without rows.
 */
function layoutOf(limiter: Limiter): string {
  return limiter.stored ? columnNamesOf(limiter.algorithm) : ''
}

/** Each settlement needs them. */
const columnNamesOf = onceFor(({ columns }: AnyAlgorithm) => columns.toSorted().join())
