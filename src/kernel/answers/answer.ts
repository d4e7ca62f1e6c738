import type { Limiter } from '../limits/algorithm.ts'
import { isEndless, startIn } from '../limits/limiter.ts'
import { type Snapshot, whenAvailable } from '../limits/search.ts'
import type { Threshold } from '../options/choices.ts'
import { type Call, type Decision, neededBy } from '../store/call.ts'
import {
  availableIn,
  blockedIn,
  blockedUntilOf,
  capacityOf,
  remainingOf,
  unitsIn,
  usedIn,
} from './capacity.ts'
import { allowedWith, deniedUntil } from './made.ts'
import { afterCalls, grantedTo, type Outcome, type Payment, paymentOf, returnedBy } from './outcome.ts'
import type { Allowed, Denied, LimitResult, Usage } from './results.ts'
import { crossedFrom, type ReportedFacts } from './thresholds.ts'

/** An answer and its payment. */
export interface Answered {
  readonly answer: LimitResult
  readonly paid: Payment
  /** If several rows have paid: what each of them has, in the order in which they pay. */
  readonly parts?: readonly PaidPart[]
  /** For how many milliseconds the call would stay allowed if nothing else is taken. Default: forever. */
  readonly lastsMs?: number
}

/** How much of a call a row has paid. */
export interface PaidPart {
  readonly key: string
  /** When the row was made: a later row with the same key is another one. Undefined if rows stay. */
  readonly madeMs: number | undefined
  readonly amount: number
}

/** The answer of a check and its payment, which is worked out when a reservation asks for it. */
export class AnswerTo implements Answered {
  readonly answer: LimitResult
  protected readonly outcome: Outcome

  constructor(outcome: Outcome, reporting: ReportedFacts) {
    this.answer = withReturned(answerOf(outcome, reporting), outcome)
    this.outcome = outcome
  }

  get paid(): Payment {
    return paymentOf(this.outcome)
  }
}

/** The answer of a check. */
export function answerOf(outcome: Outcome, reporting: ReportedFacts): LimitResult {
  const { call, decision, place } = outcome
  if (call.purpose !== 'take' || place < decision.granted) return allowanceOf(outcome, reporting)
  const denied = denialOf(call, afterCalls(outcome, decision.granted))
  return reporting.dryRun ? letPass(denied, call) : denied
}

/** The answer to a call that a dry run lets pass without a charge. It starts no block. */
export function letPass(denied: Denied, call: Call): Allowed {
  const { blockedUntil: _, ...present } = denied
  return { ...present, success: true, retryAfter: 0, wouldDeny: denied, ...grantedIn(call, call.rate) }
}

/** The field `granted`, for calls with `atLeast`. */
export function grantedIn({ atLeast }: Call, granted: number): Pick<Allowed, 'granted'> {
  return atLeast === null ? {} : { granted }
}

/** The answer to a call that was granted, or that is never denied. */
export function allowanceOf(outcome: Outcome, { thresholds }: ReportedFacts): Allowed {
  const { call, decision, place } = outcome
  const { rate, limiter } = call
  const { granted, state, prefetched } = decision
  if (prefetched) return prefetched
  // The capacity limits the sum of equal refunds. The part of each one is unknown, so each answer shows the
  // state after all of them.
  const snapshot = afterCalls(outcome, rate > 0 ? place + 1 : granted)
  const allowed = allowedWith(
    capacityOf(limiter, snapshot),
    remainingOf(limiter, snapshot),
    whenWhole(limiter, snapshot, decision.isNew),
  )
  if (rate > 0 && limiter.algorithm.kind === 'window') allowed.start = state.windowStart
  if (call.atLeast !== null) allowed.granted = grantedTo(outcome)
  if (call.purpose === 'look' || place >= granted) return allowed
  if (place === 0 && decision.ended) allowed.ended = decision.ended
  const until = blockedUntilOf(limiter, snapshot)
  // Only settled amounts cross a threshold, so estimates do not.
  const mayCross = thresholds.length > 0 && call.reserved <= 0
  if (until === undefined && !mayCross) return allowed
  const before = afterCalls(outcome, place)
  if (until !== undefined && until !== blockedUntilOf(limiter, before)) allowed.blockedUntil = until
  if (!mayCross) return allowed
  return withCrossed(allowed, crossedBetween(limiter, before, afterCalls(outcome, place + 1), thresholds))
}

/** Adds how much was given back to the answer of a refund. */
function withReturned<Answer extends LimitResult>(answer: Answer, outcome: Outcome): Answer {
  const { rate, paidWindowStart } = outcome.call
  // A refund to a window becomes a look if the limit has no windows.
  const givesBack = rate < 0 || paidWindowStart !== null
  return givesBack ? { ...answer, returned: returnedBy(outcome) } : answer
}

export function withCrossed(allowed: Allowed, crossed: readonly Threshold[]): Allowed {
  return crossed.length > 0 ? { ...allowed, crossed } : allowed
}

function denialOf(call: Call, snapshot: Snapshot): Denied {
  const { limiter } = call
  return denialUntil(limiter, snapshot, whenAvailable(limiter, snapshot, neededBy(call)))
}

/** A denial. `reset` is the time at which there is enough. */
export function denialUntil(limiter: Limiter, snapshot: Snapshot, reset: number): Denied {
  // A window without a limit denies calls that it cannot count.
  const units = unitsIn(limiter, snapshot)
  const denied = deniedUntil(reset, snapshot.now, capacityOf(limiter, snapshot), units)
  return { ...denied, ...blockedIn(limiter, snapshot) }
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
  const { kind } = limiter.algorithm
  const { state, params, isNew } = decision
  return {
    limit: capacityOf(limiter, decision),
    remaining: remainingOf(limiter, decision),
    reset: whenWhole(limiter, decision, isNew),
    used: usedIn(limiter, decision),
    ...(kind === 'window' ? { start: startIn(params, state.windowStart) } : {}),
    ...blockedIn(limiter, decision),
  }
}

/**
 * When the limit is full again. `Infinity` for a new key that fills only after a check has inserted its row.
 */
function whenWhole(limiter: Limiter, snapshot: Snapshot, isNew: boolean | undefined): number {
  if (isEndless(limiter)) return blockedUntilOf(limiter, snapshot) ?? snapshot.now
  if (isNew) return Number.POSITIVE_INFINITY
  const { numbers } = limiter.algorithm
  const capacity = capacityOf(limiter, snapshot)
  if (!numbers.wholeAt) return whenAvailable(limiter, snapshot, capacity)
  const { state, now, params } = snapshot
  return availableIn(limiter, snapshot) >= capacity ? now : numbers.wholeAt(state, params)
}
