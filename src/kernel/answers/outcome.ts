import type { Limiter } from '../limits/algorithm.ts'
import { freshState } from '../limits/limiter.ts'
import type { Snapshot } from '../limits/search.ts'
import { type Call, type Decision, limiterFor, type Request, reservedIn } from '../store/call.ts'

// What a call has changed.

/** A call and its decision. */
export interface Outcome<R = Call, D = Decision> {
  readonly call: R
  readonly decision: D
  /** The call's position among the equal calls that were decided together. The first is 0. */
  readonly place: number
}

/** The payment for a call. */
export interface Payment {
  readonly rate: number
  /** The start of the window that paid. Null if no window paid. */
  readonly windowStart: number | null
  /** The usage before an estimate was charged. Null for other calls. */
  readonly usedBefore: number | null
}

/** The payment where no window is known to have paid. */
export function paidWith(rate: number): Payment {
  return { rate, windowStart: null, usedBefore: null }
}

/** The payment of an allowed call. */
export function paymentOf(outcome: Outcome): Payment {
  const { call, decision, place } = outcome
  const { kind, numbers } = call.limiter.algorithm
  // This runs for each check, and only estimates need it.
  const before = call.reserved > 0 ? afterCalls(outcome, place) : undefined
  return {
    rate: grantedTo(outcome),
    windowStart: kind === 'window' ? decision.state.windowStart : null,
    usedBefore: before ? numbers.used(before.state, before.now, before.params) : null,
  }
}

/** How much a call gave back: no more than was used, and nothing to another window. */
export function returnedBy(outcome: Outcome): number {
  const { call, decision, place } = outcome
  if (call.rate >= 0 || place >= decision.granted) return 0
  return usedLess(call, afterCalls(outcome, place), afterCalls(outcome, place + 1))
}

/** How much less is used after a refund. */
export function usedLess({ limiter, rate }: Call, before: Snapshot, after: Snapshot): number {
  const { numbers, tolerance } = limiter.algorithm
  const [from, to] = [before, after].map(({ state, now, params }) => numbers.used(state, now, params))
  const returned = (from as number) - (to as number)
  // Rounding errors of doubles count as given back.
  return returned + tolerance >= -rate ? -rate : returned
}

/** The snapshot after the first `calls` of the equal calls that were decided together. */
export function afterCalls(outcome: Pick<Outcome, 'call' | 'decision'>, calls: number): Snapshot {
  const { call, decision } = outcome
  const { purpose, paidWindowStart } = call
  const limiter = call.limiter.stored ? limiterFor(call.limiter, purpose) : call.limiter
  const amount = amountOf(outcome, calls)
  const { add, block } = limiter.algorithm.numbers
  if (purpose === 'add' && add) {
    const { state, now, params } = decision
    return { now, params, state: add(state, now, amount) }
  }
  if (purpose === 'block' && block && calls > 0) {
    const { state, now, params } = decision
    return { now, params, state: block(state, now, call.rate) }
  }
  if (typeof purpose === 'object' && calls > 0) {
    const { now, params } = decision
    return { now, params, state: purpose.after(limiter, decision, call, calls) }
  }
  if (purpose !== 'adjust') return after(limiter, decision, amount, reservedIn(call) > 0 ? amount : 0)
  const isPayer = limiter.algorithm.kind === 'bucket' || decision.state.windowStart === paidWindowStart
  return after(limiter, decision, amount, isPayer ? calls * reservedIn(call) : 0)
}

/** The amount that the first `calls` of the equal calls take together, by the rule of the statement. */
function amountOf({ call, decision }: Pick<Outcome, 'call' | 'decision'>, calls: number): number {
  const { rate, atLeast, limiter } = call
  // In debt, less than nothing is available.
  if (atLeast === null || calls === 0) return calls * rate
  const { state, now, params } = decision
  return Math.min(calls * rate, limiter.algorithm.numbers.available(state, now, params))
}

/** The amount that an allowed call takes: not less than it needs, even if fractions add up to a little less. */
export function grantedTo(outcome: Outcome): number {
  const { call, place } = outcome
  const { rate, atLeast } = call
  if (atLeast === null) return rate
  return Math.max(Math.min(rate, amountOf(outcome, place + 1) - place * rate), atLeast)
}

/** The snapshot after an amount is taken and the reserved amount changes by `reserved`. */
function after({ algorithm }: Limiter, snapshot: Snapshot, amount: number, reserved = 0): Snapshot {
  if (amount === 0 && reserved === 0) return snapshot
  const { state, now, params } = snapshot
  return { now, params, state: algorithm.numbers.consume(state, now, amount, params, reserved) }
}

/** Whether the database has to decide the call. */
export function isRequest(call: Call): call is Request {
  return call.limiter.stored
}

/** The outcome of a call without a limit: allowed, with nothing used. */
export function unlimitedOutcome(call: Call, now: number): Outcome {
  const { params } = call.limiter
  const state = freshState(call.limiter, now, params)
  return { call, decision: { now, state, params, granted: 1 }, place: 0 }
}
