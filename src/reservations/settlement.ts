import type { Limiter } from '../algorithms/algorithm.ts'
import { TOLERANCE } from '../algorithms/bucket.ts'
import {
  allowanceOf,
  crossedFrom,
  type Outcome,
  type Payment,
  type Reporting,
  returnedBy,
  withCrossed,
} from '../check/answer.ts'
import type { Checker } from '../check/checker.ts'
import type { Allowed } from '../check/results.ts'
import type { CallOptions } from '../config.ts'
import { RatelimitError } from '../errors.ts'
import { type Call, reservedIn } from '../runtime/call.ts'
import { callOf, checkRate } from '../validate.ts'

/** What has to be known of an estimate to settle it. A token holds it. */
export interface Estimate {
  /** As it is stored. */
  readonly key: string
  readonly paid: Payment
  /** The time from which a bucket gives nothing back; null if there is none. */
  readonly refundableUntil: number | null
  /** A dry run lets a call pass that is never charged. A degraded answer may stand for a charge or for none. */
  readonly how: 'charged' | 'passed' | 'degraded'
  /** The capacity of its limiter, of which thresholds are shares. */
  readonly limit: number
  /** The layout of the rows that were charged. */
  readonly layout: string
}

/** @throws RatelimitError `INVALID_RATE` */
export function checkActual(actual: unknown, limiter: Limiter): void {
  checkRate(actual, limiter)
  if (actual < 0) {
    throw new RatelimitError('INVALID_RATE', 'What a reservation has cost is a number of 0 or more.')
  }
}

/** An estimate, what it has cost, and the plan under which it is settled. */
export interface Settled {
  readonly estimate: Estimate
  readonly actual: number
  readonly limiter: Limiter
  /** Whether the caller has said so. Otherwise it may be outdated, and must not begin the row anew. */
  readonly isPresent: boolean
}

/** Settles the actual cost. */
export async function settle(checker: Checker, settled: Settled, tx: CallOptions['tx']): Promise<Allowed> {
  const settlement = settlementOf(checker, settled)
  const outcome = await checker.decide(settlement, tx)
  return settledAnswer(outcome, settled, checker.config.reporting)
}

/** The answer of the call that has settled an estimate. */
export function settledAnswer(outcome: Outcome, settled: Settled, reporting: Reporting): Allowed {
  const { estimate, actual } = settled
  const left = allowanceOf(outcome, reporting)
  const answer = actual < estimate.paid.rate ? { ...left, returned: returnedBy(outcome) } : left
  return settled.estimate.how === 'charged' ? withKept(answer, outcome, settled, reporting) : answer
}

/** The call that charges what is missing, or gives the rest back to the window that paid. */
export function settlementOf({ config }: Checker, settled: Settled): Call {
  const { estimate, limiter } = settled
  const { key, paid, how } = estimate
  const rate = differenceOf(settled)
  const settlement: Call = {
    ...callOf(config.namespace.prefix, config.limiter, key, { rate, limiter, force: true }),
    paidWindowStart: paid.windowStart,
    refundableUntil: estimate.refundableUntil,
    refusesOther: !settled.isPresent,
    reserved: how === 'charged' && hasPaid(limiter, estimate) ? -paid.rate : 0,
  }
  // The row says what is reserved, so it changes even if the estimate was right.
  return reservedIn(settlement) < 0 ? { ...settlement, purpose: 'adjust' } : settlement
}

/** What the estimate lacks; below 0 if some of it is given back. */
function differenceOf({ estimate, actual, limiter }: Settled): number {
  const { paid, how } = estimate
  const unpaid = actual - paid.rate
  // A dry run never charges a call that it would have denied.
  if (how === 'passed') return 0
  // What may not have been charged is not given back. Rows of another algorithm have not paid.
  if (unpaid < 0 && (how === 'degraded' || !hasPaid(limiter, estimate))) return 0
  // A bucket may have paid a fraction, and the plan may count whole units by now.
  return limiter.algorithm.integersOnly ? Math.ceil(unpaid - TOLERANCE) : unpaid
}

/**
 * The answer, and what the part of the estimate has crossed that is kept: what a plain call for it would have
 * crossed. A row that says what is settled knows better.
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
  const kept = crossedFrom({ algorithm, limit }, usedBefore, to, thresholds)
  const crossed = thresholds.filter((share) => kept.includes(share) || settled.crossed?.includes(share))
  return withCrossed(settled, crossed)
}

/** Whether rows of this limiter's algorithm were charged the estimate. */
function hasPaid(limiter: Limiter, { layout }: Estimate): boolean {
  return limiter.stored && layout === layoutOf(limiter)
}

/**
 * Tells the rows that a limiter reads and writes: those of another algorithm fill other columns. Empty for one
 * that has no rows. The texts of reservations hold it and do not expire, so it is sorted: the order of the
 * columns in the source must not matter.
 */
export function layoutOf(limiter: Limiter): string {
  return limiter.stored ? limiter.algorithm.columns.toSorted().join() : ''
}
