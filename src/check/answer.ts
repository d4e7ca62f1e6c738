import type { Limiter } from '../algorithms/algorithm.ts'
import { isEndless } from '../algorithms/limiter.ts'
import { type Snapshot, whenAvailable } from '../algorithms/search.ts'
import { type Call, type Decision, neededBy, reservedIn } from '../runtime/call.ts'
import type { Allowed, Denied, LimitResult, Usage } from './results.ts'

/** A call, and how it was decided. */
export interface Outcome {
  readonly call: Call
  readonly decision: Decision
  /** The call's place among the equal calls that were decided together; the first is 0. */
  readonly place: number
}

/** What was paid for a call. */
export interface Payment {
  readonly rate: number
  /** The start of the window that paid; null if no window paid. */
  readonly windowStart: number | null
  /** What had been used before an estimate was charged; null of other calls. */
  readonly usedBefore: number | null
}

/** What an allowed call has paid. */
export function paymentOf(outcome: Outcome): Payment {
  const { call, decision, place } = outcome
  const { kind, numbers } = call.limiter.algorithm
  // Each check comes here, and only estimates are settled.
  const before = call.reserved > 0 ? afterCalls(outcome, place) : undefined
  return {
    rate: grantedTo(outcome),
    windowStart: kind === 'window' ? decision.state.windowStart : null,
    usedBefore: before ? numbers.used(before.state, before.now, before.params) : null,
  }
}

/**
 * The time from which a bucket gives nothing back of what was charged with this answer: by itself it has filled
 * by then. Null if there is none; of a window, its start says what may be given back.
 */
export function refundableUntilOf({ algorithm }: Limiter, { reset }: LimitResult): number | null {
  return algorithm.kind === 'bucket' && Number.isFinite(reset) ? reset : null
}

/** What a limiter's answers also report. */
export interface Reporting {
  /** Shares of the limit whose crossing the answer reports. */
  readonly thresholds: readonly number[]
  /** Whether a denial is only reported. */
  readonly dryRun: boolean
}

/** The answer of a check. */
export function answerOf(outcome: Outcome, reporting: Reporting): LimitResult {
  const { call, decision, place } = outcome
  if (call.purpose !== 'take' || place < decision.granted) return allowanceOf(outcome, reporting)
  const denied = denialOf(call, afterCalls(outcome, decision.granted))
  return reporting.dryRun ? letPass(denied, call) : denied
}

/** The answer to a call that is not charged and passes all the same. */
export function letPass(denied: Denied, call: Call): Allowed {
  return { ...denied, success: true, retryAfter: 0, wouldDeny: denied, ...grantedIn(call, call.rate) }
}

/** What an answer says of how much was granted. */
export function grantedIn({ atLeast }: Call, granted: number): Pick<Allowed, 'granted'> {
  return atLeast === null ? {} : { granted }
}

/** The answer of a check that was allowed: of one that was granted, or of one that nothing denies. */
export function allowanceOf(outcome: Outcome, { thresholds }: Reporting): Allowed {
  const { call, decision, place } = outcome
  const { rate, limiter, purpose } = call
  const { granted, state } = decision
  // The capacity bounds the sum of equal refunds. How much of it one gave back is unknown, so each answer shows
  // all of them.
  const snapshot = afterCalls(outcome, rate > 0 ? place + 1 : granted)
  // Each check comes here, and what is made by spreads is slow to make and to read.
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
  if (thresholds.length === 0 || !mayCross(call) || place >= granted) return allowed
  const [before, next] = [afterCalls(outcome, place), afterCalls(outcome, place + 1)]
  return withCrossed(allowed, crossedBetween(limiter, before, next, thresholds))
}

/** The answer to a call that gives back also says how much. */
export function withReturned<Answer extends LimitResult>(answer: Answer, outcome: Outcome): Answer {
  const { rate, paidWindowStart } = outcome.call
  // A limit without windows is not asked for what a window has paid.
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
  // What doubles lose on the way was given back too.
  return returned + tolerance >= -rate ? -rate : returned
}

/** Thresholds are crossed by what is settled, so an estimate crosses none. */
function mayCross(call: Call): boolean {
  return call.reserved > 0 ? false : call.rate > 0 || reservedIn(call) < 0
}

export function withCrossed(allowed: Allowed, crossed: readonly number[]): Allowed {
  return crossed.length > 0 ? { ...allowed, crossed } : allowed
}

/** The snapshot after so many of the equal calls that were decided together. */
export function afterCalls(outcome: Pick<Outcome, 'call' | 'decision'>, calls: number): Snapshot {
  const { call, decision } = outcome
  const { limiter, purpose, paidWindowStart } = call
  const amount = amountOf(outcome, calls)
  const { grant } = limiter.algorithm.numbers
  if (purpose === 'grant' && grant) {
    const { state, now, params } = decision
    return { now, params, state: grant(state, now, amount) }
  }
  if (purpose !== 'adjust') return after(limiter, decision, amount, reservedIn(call) > 0 ? amount : 0)
  const isPayer = decision.state.windowStart === paidWindowStart
  return after(limiter, decision, amount, isPayer ? calls * reservedIn(call) : 0)
}

/** How much so many of the equal calls take together, by the rule of the statement that grants it. */
function amountOf({ call, decision }: Pick<Outcome, 'call' | 'decision'>, calls: number): number {
  const { rate, atLeast, limiter } = call
  // In debt, less than nothing is available.
  if (atLeast === null || calls === 0) return calls * rate
  const { state, now, params } = decision
  return Math.min(calls * rate, limiter.algorithm.numbers.available(state, now, params))
}

/** How much an allowed call takes. */
function grantedTo(outcome: Outcome): number {
  const { call, place } = outcome
  if (call.atLeast === null) return call.rate
  return amountOf(outcome, place + 1) - amountOf(outcome, place)
}

function denialOf(call: Call, snapshot: Snapshot): Denied {
  const { limiter } = call
  return denialUntil(limiter, snapshot, whenAvailable(limiter, snapshot, neededBy(call)))
}

/** A denial: what there is, and the time at which there is enough. */
export function denialUntil(limiter: Limiter, snapshot: Snapshot, reset: number): Denied {
  return {
    success: false,
    limit: capacityOf(limiter, snapshot),
    // A window without a limit denies what it cannot count.
    remaining: unitsIn(limiter, snapshot),
    reset,
    retryAfter: reset - snapshot.now,
  }
}

function crossedBetween(
  limiter: Limiter,
  before: Snapshot,
  { state, now, params }: Snapshot,
  thresholds: readonly number[],
): number[] {
  const { numbers, settled } = limiter.algorithm
  const from = settled ? settled.most(before.state) : numbers.used(before.state, before.now, params)
  const to = settled ? settled.now(state) : numbers.used(state, now, params)
  return crossedFrom(limiter, from, to, thresholds)
}

/** The thresholds that lie above one amount and not above the other. */
export function crossedFrom(
  { algorithm, limit }: Pick<Limiter, 'algorithm' | 'limit'>,
  from: number,
  to: number,
  thresholds: readonly number[],
): number[] {
  const share = (amount: number) => (amount + algorithm.tolerance) / limit
  return thresholds.filter((threshold) => share(from) < threshold && share(to) >= threshold)
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

/** When the limit is whole again: never, as long as no check makes the row that has to fill. */
function whenWhole(limiter: Limiter, snapshot: Snapshot, isNew: boolean | undefined): number {
  if (isEndless(limiter)) return snapshot.now
  return isNew ? Number.POSITIVE_INFINITY : whenAvailable(limiter, snapshot, capacityOf(limiter, snapshot))
}

/** The snapshot after an amount was taken from it, and so much more of it is reserved. */
function after({ algorithm }: Limiter, snapshot: Snapshot, amount: number, reserved = 0): Snapshot {
  if (amount === 0 && reserved === 0) return snapshot
  const { state, now, params } = snapshot
  return { now, params, state: algorithm.numbers.consume(state, now, amount, params, reserved) }
}

/** The capacity: the limit, or what the row says. */
function capacityOf(limiter: Limiter, snapshot: Snapshot): number {
  return isEndless(limiter) ? limiter.limit : mostIn(limiter, snapshot)
}

/** The most that there can be. A window without a limit has what it can count. */
export function mostIn({ algorithm }: Limiter, { state, params }: Snapshot): number {
  return algorithm.numbers.capacity?.(state) ?? params.limit
}

/** How much a call may take, by the rule of the statement that grants it. */
export function availableIn({ algorithm }: Limiter, { state, now, params }: Snapshot): number {
  return algorithm.numbers.available(state, now, params) + algorithm.tolerance
}

/** Whole units that could be taken. */
export function remainingOf(limiter: Limiter, snapshot: Snapshot): number {
  return isEndless(limiter) ? limiter.limit : unitsIn(limiter, snapshot)
}

/** The same without an exception: a window without a limit has what it can still count. */
export function unitsIn(limiter: Limiter, snapshot: Snapshot): number {
  return Math.max(Math.floor(availableIn(limiter, snapshot)), 0)
}
