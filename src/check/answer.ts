import type { Limiter } from '../algorithms/algorithm.ts'
import { type Snapshot, whenAvailable } from '../algorithms/search.ts'
import type { Call, Decision } from '../runtime/call.ts'
import type { Allowed, Denied, LimitResult, Usage } from './results.ts'

/** A call, and how it was decided. */
export interface Outcome {
  readonly call: Call
  readonly decision: Decision
  /** The call's place among the equal calls that were decided together; the first is 0. */
  readonly place: number
}

/** What was paid for a call; null if no window paid. */
export interface Payment {
  readonly rate: number
  readonly windowStart: number | null
}

/** What an allowed call has paid. */
export function paymentOf({ call, decision }: Outcome): Payment {
  const isWindow = call.limiter.algorithm.kind === 'window'
  return { rate: call.rate, windowStart: isWindow ? decision.state.windowStart : null }
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
  const { rate, limiter, purpose } = call
  if (purpose !== 'take' || place < decision.granted) return allowanceOf(outcome, reporting)
  const denied = denialOf(limiter, after(limiter, decision, decision.granted * rate), rate)
  return reporting.dryRun ? { ...denied, success: true, retryAfter: 0, wouldDeny: denied } : denied
}

/** The answer of a check that was allowed: of one that was granted, or of one that nothing denies. */
export function allowanceOf({ call, decision, place }: Outcome, { thresholds }: Reporting): Allowed {
  const { rate, limiter, purpose } = call
  const { granted, params } = decision
  // The capacity bounds the sum of equal refunds. How much of it one gave back is unknown, so each answer shows
  // all of them.
  const taken = rate > 0 ? (place + 1) * rate : granted * rate
  const snapshot = after(limiter, decision, taken)
  const allowed: Allowed = {
    success: true,
    limit: params.limit,
    remaining: remainingOf(limiter, snapshot),
    reset: whenWhole(limiter, snapshot, decision.isNew && purpose === 'look'),
    retryAfter: 0,
  }
  if (thresholds.length === 0 || rate <= 0) return allowed
  const crossed = crossedBetween(limiter, after(limiter, decision, taken - rate), snapshot, thresholds)
  return crossed.length > 0 ? { ...allowed, crossed } : allowed
}

function denialOf(limiter: Limiter, snapshot: Snapshot, rate: number): Denied {
  const reset = whenAvailable(limiter, snapshot, rate)
  return {
    success: false,
    limit: snapshot.params.limit,
    remaining: remainingOf(limiter, snapshot),
    reset,
    retryAfter: reset - snapshot.now,
  }
}

function crossedBetween(
  { algorithm }: Limiter,
  before: Snapshot,
  { state, now, params }: Snapshot,
  thresholds: readonly number[],
): number[] {
  const { numbers, tolerance, peak } = algorithm
  const share = (amount: number) => (amount + tolerance) / params.limit
  const most = peak ? before.state[peak] : numbers.used(before.state, before.now, params)
  const [from, to] = [share(most), share(numbers.used(state, now, params))]
  return thresholds.filter((threshold) => from < threshold && to >= threshold)
}

/** The answer of a look. */
export function usageOf(limiter: Limiter, decision: Snapshot & Pick<Decision, 'isNew'>): Usage {
  const { kind, numbers } = limiter.algorithm
  const { state, now, params, isNew } = decision
  return {
    limit: params.limit,
    remaining: remainingOf(limiter, decision),
    reset: whenWhole(limiter, decision, isNew),
    used: numbers.used(state, now, params),
    ...(kind === 'window' ? { start: params['periodStart'] ?? state.windowStart } : {}),
  }
}

/** When the limit is whole again: never, as long as no check makes the row that has to fill. */
function whenWhole(limiter: Limiter, snapshot: Snapshot, isNew: boolean | undefined): number {
  return isNew ? Number.POSITIVE_INFINITY : whenAvailable(limiter, snapshot, snapshot.params.limit)
}

/** The snapshot after an amount was taken from it. */
export function after({ algorithm }: Limiter, snapshot: Snapshot, amount: number): Snapshot {
  if (amount === 0) return snapshot
  const { state, now, params } = snapshot
  const next = algorithm.numbers.consume(state, now, amount, params)
  // An algorithm reads its own columns only.
  return { now, params, state: next as Snapshot['state'] }
}

/** How much a call may take, by the rule of the statement that grants it. */
export function availableIn({ algorithm }: Limiter, { state, now, params }: Snapshot): number {
  return algorithm.numbers.available(state, now, params) + algorithm.tolerance
}

/** Whole units that could be taken. */
export function remainingOf(limiter: Limiter, snapshot: Snapshot): number {
  return Math.max(Math.floor(availableIn(limiter, snapshot)), 0)
}
