import type { Limiter } from '../algorithms/algorithm.ts'
import type { CallOptions } from '../config.ts'
import { RatelimitError } from '../errors.ts'
import { type Call, reservedIn } from '../runtime/call.ts'
import { callOf } from '../validate.ts'
import {
  allowanceOf,
  crossedFrom,
  type Outcome,
  type Payment,
  type Reporting,
  withCrossed,
} from './answer.ts'
import type { Checker } from './checker.ts'
import type { Allowed } from './results.ts'

/** What has to be known of an estimate to settle it. A token holds it. */
export interface Estimate {
  /** As it is stored. */
  readonly key: string
  readonly paid: Payment
  /** A dry run lets a call pass that is never charged. A degraded answer may stand for a charge or for none. */
  readonly how: 'charged' | 'passed' | 'degraded'
  /** The capacity of its limiter, of which thresholds are shares. */
  readonly limit: number
}

/** @throws RatelimitError `INVALID_RATE` */
export function checkActual(actual: number): void {
  if (!(actual >= 0)) {
    throw new RatelimitError('INVALID_RATE', 'What a reservation has cost is a number from 0 on.')
  }
}

/** An estimate that rows of the paid limiter's algorithm were charged, and what it has cost. */
export interface Settled {
  readonly estimate: Estimate
  readonly paidLimiter: Limiter
  readonly actual: number
}

/** Settles the actual cost. */
export async function settle(checker: Checker, settled: Settled, options: CallOptions): Promise<Allowed> {
  const settlement = settlementOf(checker, settled, options)
  const outcome = await checker.decide(settlement, options.tx)
  return settledAnswer(outcome, settled, checker.config.reporting)
}

/** The answer of the call that has settled an estimate. */
export function settledAnswer(outcome: Outcome, settled: Settled, reporting: Reporting): Allowed {
  const answer = allowanceOf(outcome, reporting)
  return settled.estimate.how === 'charged' ? withKept(answer, outcome, settled, reporting) : answer
}

/** The call that charges what is missing, or gives the rest back to the window that paid. */
export function settlementOf(
  { config }: Checker,
  { estimate: { key, paid, how }, paidLimiter, actual }: Settled,
  { limiter = paidLimiter }: CallOptions,
): Call {
  const unpaid = actual - paid.rate
  // A dry run never charges a call that it would have denied. What may not have been charged is not given back.
  const difference = how === 'passed' || (how === 'degraded' && unpaid < 0) ? 0 : unpaid
  const isCharged = how === 'charged'
  const missing = { ...paid, rate: difference, reserved: isCharged ? -paid.rate : 0 }
  // Rows of another algorithm have not paid, so they give nothing back.
  const isPayer = limiter.stored && paidLimiter.stored && rowsOf(limiter) === rowsOf(paidLimiter)
  const rate = missing.rate < 0 && !isPayer ? 0 : missing.rate
  const settlement: Call = {
    ...callOf(config.namespace.prefix, config.limiter, key, { rate, limiter, force: true }),
    paidWindowStart: missing.windowStart,
    reserved: isPayer ? missing.reserved : 0,
  }
  // The row says what is reserved, so it changes even if the estimate was right.
  return reservedIn(settlement) < 0 ? { ...settlement, purpose: 'adjust' } : settlement
}

/**
 * The answer, and what the part of the estimate has crossed that is kept: what a plain call for it would have
 * crossed. A row that says what is settled knows better.
 */
function withKept(
  settled: Allowed,
  { decision }: Outcome,
  { estimate, paidLimiter: { algorithm }, actual }: Settled,
  { thresholds }: Reporting,
): Allowed {
  const { limit, paid } = estimate
  const { usedBefore, windowStart, rate } = paid
  const isOver = windowStart !== null && windowStart !== decision.state.windowStart
  if (algorithm.settled || usedBefore === null || isOver) return settled
  const to = usedBefore + Math.min(actual, rate)
  const kept = crossedFrom({ algorithm, limit }, usedBefore, to, thresholds)
  const crossed = thresholds.filter((share) => kept.includes(share) || settled.crossed?.includes(share))
  return withCrossed(settled, crossed)
}

/**
 * What tells the rows that a limiter reads and writes: those of another algorithm fill other columns. Empty
 * for one that has no rows.
 */
export function rowsOf(limiter: Limiter): string {
  return limiter.stored ? limiter.algorithm.columns.join() : ''
}
