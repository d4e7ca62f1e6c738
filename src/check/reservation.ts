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
import type { Answered } from './degrading.ts'
import { combined, decideAll, type LimiterCall } from './limit-all.ts'
import type { Allowed, Denied, Granted, LimitAllResult } from './results.ts'

/** An estimate that is charged, and waits for the cost that it stands for. */
export interface Reservation {
  /**
   * Settles the actual cost. What the estimate lacks is charged, into debt if necessary; the rest of a high
   * estimate is given back to the window that paid. It is never denied.
   *
   * It throws during an outage whatever `onError` says, so that the cost is not lost. Without `tx` it runs
   * outside the transaction of the reservation. Without `limiter` it uses the limit of the reservation.
   *
   * @throws RatelimitError `INVALID_RATE`, `ALREADY_SETTLED`; and what `Ratelimit.limit` throws. It may be
   * called again after an error that says that nothing was charged. It cannot see a rollback of the transaction
   * that it was settled in: the estimate stays charged, and another call is refused. Begin again with
   * `reserve`, or settle outside the transaction.
   */
  commit(actual: number, options?: CallOptions): Promise<Allowed>
  /** Gives all of it back: the same as `commit(0)`. */
  release(options?: CallOptions): Promise<Allowed>
}

/** The answer of `Ratelimit.reserve`. A denial needs no settling. */
export type Reserved = (Allowed & Reservation) | Denied

/** The answer of `Ratelimit.reserve` with `atLeast`. */
export type ReservedPart = (Allowed & Granted & Reservation) | Denied

/** The answer of `Ratelimit.reserveAll`. A denial needs no settling. */
export type ReservedAll<Request> = LimitAllResult<Request> & {
  /**
   * Gives everything back to the windows that paid, each limit by a statement of its own. If it throws, it may
   * be called again, for what was not given back. Does nothing after a denial.
   *
   * @throws RatelimitError what {@link Reservation.release} throws.
   */
  release(): Promise<void>
}

/** Charges the call's rate, to be settled. */
export async function reserve(checker: Checker, call: Call, tx: CallOptions['tx']): Promise<Reserved> {
  checkReserved(call)
  const answered = await checker.answer(estimateOf(call), tx)
  const { answer } = answered
  return answer.success ? { ...answer, ...reservationOf({ checker, call }, answered) } : answer
}

/** Charges the rates of all calls or none, to be given back together. */
export async function reserveAll<Request>(
  requests: readonly Request[],
  calls: readonly LimiterCall[],
  tx: CallOptions['tx'],
): Promise<ReservedAll<Request>> {
  for (const { call } of calls) checkReserved(call)
  const estimates = calls.map(({ checker, call }) => ({ checker, call: estimateOf(call) }))
  const answered = await decideAll(estimates, tx)
  const answer = combined(requests, answered)
  const charged = answer.success ? calls : []
  let unsettled = charged.map((call, place) => reservationOf(call, answered[place] as Answered))
  const release = async () => {
    const settled = await Promise.allSettled(unsettled.map((reservation) => reservation.release()))
    unsettled = unsettled.filter((_, place) => settled[place]?.status === 'rejected')
    for (const outcome of settled) if (outcome.status === 'rejected') throw outcome.reason
  }
  return { ...answer, release }
}

function estimateOf(call: Call): Call {
  return { ...call, reserved: call.rate }
}

function checkReserved({ rate }: Call): void {
  if (rate < 0) throw new RatelimitError('INVALID_RATE', 'A reservation is for a rate from 0 on.')
}

function reservationOf({ checker, call }: LimiterCall, { answer, paid }: Answered): Reservation {
  const wasCharged = !(answer.success && answer.wouldDeny)
  let isSettled = false
  const commit = async (actual: number, options: CallOptions = {}): Promise<Allowed> => {
    if (isSettled) {
      throw new RatelimitError('ALREADY_SETTLED', 'The reservation was committed or released before.')
    }
    if (!(actual >= 0)) {
      throw new RatelimitError('INVALID_RATE', 'What a reservation has cost is a number from 0 on.')
    }
    isSettled = true
    try {
      const unpaid = actual - paid.rate
      // A dry run never charges a call that it would have denied. What may not have been charged is not given
      // back.
      const difference = !wasCharged || (answer.degraded && unpaid < 0) ? 0 : unpaid
      const isCharged = wasCharged && !answer.degraded
      const reserved = isCharged ? -paid.rate : 0
      const settlement = settlementOf(checker, call, { ...paid, rate: difference, reserved }, options)
      const outcome = await checker.decide(settlement, options.tx)
      const settled = allowanceOf(outcome, checker.config.reporting)
      return isCharged
        ? withKept(settled, outcome, { call, paid, actual }, checker.config.reporting)
        : settled
    } catch (error) {
      isSettled = error instanceof RatelimitError && error.code === 'OUTCOME_UNKNOWN'
      throw error
    }
  }
  return { commit, release: (options) => commit(0, options) }
}

/** The call that charges what is missing, or gives the rest back to the window that paid. */
function settlementOf(
  { config }: Checker,
  { key, limiter: paidLimiter }: Call,
  missing: Payment & Pick<Call, 'reserved'>,
  { limiter = paidLimiter }: CallOptions,
): Call {
  // Rows of another algorithm have not paid, so they give nothing back.
  const isPayer = sharesRows(limiter, paidLimiter)
  const rate = missing.rate < 0 && !isPayer ? 0 : missing.rate
  const settlement: Call = {
    ...callOf(config.namespace.prefix, paidLimiter, key, { rate, limiter, force: true }),
    paidWindowStart: missing.windowStart,
    reserved: isPayer ? missing.reserved : 0,
  }
  // The row says what is reserved, so it changes even if the estimate was right.
  return reservedIn(settlement) < 0 ? { ...settlement, purpose: 'adjust' } : settlement
}

/** A reservation that is settled. */
interface Settled {
  readonly call: Call
  readonly paid: Payment
  readonly actual: number
}

/**
 * The answer, and what the part of the estimate has crossed that is kept: what a plain call for it would have
 * crossed. A row that says what is settled knows better.
 */
function withKept(
  settled: Allowed,
  { decision }: Outcome,
  { call: { limiter }, paid, actual }: Settled,
  { thresholds }: Reporting,
): Allowed {
  const { usedBefore, windowStart, rate } = paid
  const isOver = windowStart !== null && windowStart !== decision.state.windowStart
  if (limiter.algorithm.settled || usedBefore === null || isOver) return settled
  const kept = crossedFrom(limiter, usedBefore, usedBefore + Math.min(actual, rate), thresholds)
  const crossed = thresholds.filter((share) => kept.includes(share) || settled.crossed?.includes(share))
  return withCrossed(settled, crossed)
}

/** Whether what one limiter writes is read by the other. */
function sharesRows(one: Limiter, other: Limiter): boolean {
  return one.stored && other.stored && one.algorithm.columns === other.algorithm.columns
}
