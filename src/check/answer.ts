import type { Limiter } from '../algorithms/algorithm.ts'
import { isEndless } from '../algorithms/limiter.ts'
import { type Snapshot, whenAvailable } from '../algorithms/search.ts'
import type { Threshold } from '../options/choices.ts'
import { type Call, type Decision, neededBy, reservedIn } from '../runtime/call.ts'
import type { Allowed, Denied, LimitResult, Usage } from './results.ts'
import { crossedFrom } from './thresholds.ts'

/** A call and its decision. */
export interface Outcome {
  readonly call: Call
  readonly decision: Decision
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

/** An answer and its payment. */
export interface Answered {
  readonly answer: LimitResult
  readonly paid: Payment
}

/** The answer of a check and its payment. */
export function answeredBy(outcome: Outcome, reporting: Reporting): Answered {
  return { answer: withReturned(answerOf(outcome, reporting), outcome), paid: paymentOf(outcome) }
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

/**
 * The time at which the bucket is full again by itself after a charge with this answer, so that a refund gives
 * nothing back. Null if there is none. Null for windows, because their start decides on refunds.
 */
export function refundableUntilOf({ algorithm }: Limiter, { reset }: LimitResult): number | null {
  return algorithm.kind === 'bucket' && Number.isFinite(reset) ? reset : null
}

/** The extra facts that answers report. */
export interface Reporting {
  /** Answers report which ones a call has crossed. */
  readonly thresholds: readonly Threshold[]
  /** Whether denials are only reported. */
  readonly dryRun: boolean
}

/** The answer of a check. */
export function answerOf(outcome: Outcome, reporting: Reporting): LimitResult {
  const { call, decision, place } = outcome
  if (call.purpose !== 'take' || place < decision.granted) return allowanceOf(outcome, reporting)
  const denied = denialOf(call, afterCalls(outcome, decision.granted))
  return reporting.dryRun ? letPass(denied, call) : denied
}

/** The answer to a call that a dry run lets pass without a charge. */
export function letPass(denied: Denied, call: Call): Allowed {
  return { ...denied, success: true, retryAfter: 0, wouldDeny: denied, ...grantedIn(call, call.rate) }
}

/** The field `granted`, for calls with `atLeast`. */
export function grantedIn({ atLeast }: Call, granted: number): Pick<Allowed, 'granted'> {
  return atLeast === null ? {} : { granted }
}

/** The answer to a call that was granted, or that is never denied. */
export function allowanceOf(outcome: Outcome, { thresholds }: Reporting): Allowed {
  const { call, decision, place } = outcome
  const { rate, limiter, purpose } = call
  const { granted, state, leased } = decision
  if (leased) return leased
  // The capacity limits the sum of equal refunds. The part of each one is unknown, so each answer shows the
  // state after all of them.
  const snapshot = afterCalls(outcome, rate > 0 ? place + 1 : granted)
  // This runs for each check, and objects made by spreads are slow to make and to read.
  const allowed: { -readonly [Name in keyof Allowed]: Allowed[Name] } = {
    success: true,
    limit: capacityOf(limiter, snapshot),
    remaining: remainingOf(limiter, snapshot),
    reset: whenWhole(limiter, snapshot, decision.isNew && purpose === 'look'),
    retryAfter: 0,
  }
  if (rate > 0 && limiter.algorithm.kind === 'window') allowed.start = state.windowStart
  if (call.atLeast !== null) allowed.granted = grantedTo(outcome)
  const isFirst = place === 0 && granted > 0 && purpose !== 'look'
  if (isFirst && decision.ended) allowed.ended = decision.ended
  const { blockedUntil } = limiter.algorithm.numbers
  if (blockedUntil && rate > 0 && place < granted) {
    const until = blockedUntil(snapshot.state)
    const isNew = until !== blockedUntil(afterCalls(outcome, place).state)
    if (until !== undefined && isNew) allowed.blockedUntil = until
  }
  if (thresholds.length === 0 || !mayCross(call) || place >= granted) return allowed
  const [before, next] = [afterCalls(outcome, place), afterCalls(outcome, place + 1)]
  return withCrossed(allowed, crossedBetween(limiter, before, next, thresholds))
}

/** Adds how much was given back to the answer of a refund. */
function withReturned<Answer extends LimitResult>(answer: Answer, outcome: Outcome): Answer {
  const { rate, paidWindowStart } = outcome.call
  // A refund to a window becomes a look if the limit has no windows.
  const givesBack = rate < 0 || paidWindowStart !== null
  return givesBack ? { ...answer, returned: returnedBy(outcome) } : answer
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

/** Whether the call can cross a threshold. Only settled amounts cross one, so estimates do not. */
function mayCross(call: Call): boolean {
  return call.reserved > 0 ? false : call.rate > 0 || reservedIn(call) < 0
}

export function withCrossed(allowed: Allowed, crossed: readonly Threshold[]): Allowed {
  return crossed.length > 0 ? { ...allowed, crossed } : allowed
}

/** The snapshot after the first `calls` of the equal calls that were decided together. */
export function afterCalls(outcome: Pick<Outcome, 'call' | 'decision'>, calls: number): Snapshot {
  const { call, decision } = outcome
  const { limiter, purpose, paidWindowStart } = call
  const amount = amountOf(outcome, calls)
  const { grant, block } = limiter.algorithm.numbers
  if (purpose === 'grant' && grant) {
    const { state, now, params } = decision
    return { now, params, state: grant(state, now, amount) }
  }
  if (purpose === 'block' && block && calls > 0) {
    const { state, now, params } = decision
    return { now, params, state: block(state, now, call.rate) }
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

/** The amount that an allowed call takes. */
function grantedTo(outcome: Outcome): number {
  const { call, place } = outcome
  if (call.atLeast === null) return call.rate
  return amountOf(outcome, place + 1) - amountOf(outcome, place)
}

function denialOf(call: Call, snapshot: Snapshot): Denied {
  const { limiter } = call
  return denialUntil(limiter, snapshot, whenAvailable(limiter, snapshot, neededBy(call)))
}

/** A denial. `reset` is the time at which there is enough. */
export function denialUntil(limiter: Limiter, snapshot: Snapshot, reset: number): Denied {
  return {
    success: false,
    limit: capacityOf(limiter, snapshot),
    // A window without a limit denies calls that it cannot count.
    remaining: unitsIn(limiter, snapshot),
    reset,
    retryAfter: reset - snapshot.now,
  }
}

function crossedBetween(
  limiter: Limiter,
  before: Snapshot,
  next: Snapshot,
  thresholds: readonly Threshold[],
): Threshold[] {
  const { numbers, settled } = limiter.algorithm
  const { state, now, params } = next
  const to = settled ? settled.now(state) : numbers.used(state, now, params)
  return crossedFrom(limiter, capacityOf(limiter, next), reachedIn(limiter, before), to, thresholds)
}

/** The used units up to which thresholds were crossed before. */
export function reachedIn({ algorithm }: Limiter, { state, now, params }: Snapshot): number {
  return algorithm.settled?.most(state) ?? algorithm.numbers.used(state, now, params)
}

/** The answer of a look. */
export function usageOf(limiter: Limiter, decision: Snapshot & Pick<Decision, 'isNew'>): Usage {
  const { kind, numbers } = limiter.algorithm
  const { state, now, params, isNew } = decision
  return {
    limit: capacityOf(limiter, decision),
    remaining: remainingOf(limiter, decision),
    reset: whenWhole(limiter, decision, isNew),
    used: numbers.used(state, now, params),
    ...(kind === 'window' ? { start: params['periodStart'] ?? state.windowStart } : {}),
  }
}

/**
 * When the limit is full again. `Infinity` for a new key that fills only after a check has inserted its row.
 */
function whenWhole(limiter: Limiter, snapshot: Snapshot, isNew: boolean | undefined): number {
  if (isEndless(limiter)) return snapshot.now
  if (isNew) return Number.POSITIVE_INFINITY
  const { numbers } = limiter.algorithm
  const capacity = capacityOf(limiter, snapshot)
  if (!numbers.wholeAt) return whenAvailable(limiter, snapshot, capacity)
  const { state, now, params } = snapshot
  return availableIn(limiter, snapshot) >= capacity ? now : numbers.wholeAt(state, params)
}

/** The snapshot after an amount is taken and the reserved amount changes by `reserved`. */
function after({ algorithm }: Limiter, snapshot: Snapshot, amount: number, reserved = 0): Snapshot {
  if (amount === 0 && reserved === 0) return snapshot
  const { state, now, params } = snapshot
  return { now, params, state: algorithm.numbers.consume(state, now, amount, params, reserved) }
}

/** The capacity: the limit, or the row's own. */
export function capacityOf(limiter: Limiter, snapshot: Snapshot): number {
  return isEndless(limiter) ? limiter.limit : mostIn(limiter, snapshot)
}

/** The most that can be available. For a window without a limit, this is the most that it can count. */
export function mostIn({ algorithm }: Limiter, { state, params }: Snapshot): number {
  return algorithm.numbers.capacity?.(state, params) ?? params.limit
}

/** The amount that a call may take, by the rule of the statement. */
export function availableIn({ algorithm }: Limiter, { state, now, params }: Snapshot): number {
  return algorithm.numbers.available(state, now, params) + algorithm.tolerance
}

/** Whole units that can be taken. */
export function remainingOf(limiter: Limiter, snapshot: Snapshot): number {
  return isEndless(limiter) ? limiter.limit : unitsIn(limiter, snapshot)
}

/** The same. For a window without a limit, these are the units that it can still count. */
export function unitsIn(limiter: Limiter, snapshot: Snapshot): number {
  return Math.max(Math.floor(availableIn(limiter, snapshot)), 0)
}
