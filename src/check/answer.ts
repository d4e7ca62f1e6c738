import type { Limiter } from '../algorithms/algorithm.ts'
import { type Snapshot, whenAvailable } from '../algorithms/search.ts'
import type { Decision, Request } from '../runtime/call.ts'

/** What is left of a limit. */
export interface Remaining {
  /** The capacity: `tokens` or `maxTokens`. */
  readonly limit: number
  /** Whole units that could be taken now; never below 0. */
  readonly remaining: number
  /** Unix milliseconds at which the limit is whole again if nothing more is consumed. */
  readonly reset: number
}

/** What a look finds. */
export interface Usage extends Remaining {
  /** What has been used, in tokens or units. In debt or after a downgrade it is more than the limit. */
  readonly used: number
  /** Of windows: Unix milliseconds at which the current one began, or would begin now. */
  readonly start?: number
}

/** Allowed and consumed. `remaining` and `reset` are those after the call. */
export interface Allowed extends Remaining {
  readonly success: true
  readonly retryAfter: 0
  /** The `thresholds` that this very call has crossed. */
  readonly crossed?: readonly number[]
  /** With `dryRun`: the denial that this call would have been. Nothing was consumed. */
  readonly wouldDeny?: Denied
}

/** Denied; nothing was consumed or written. */
export interface Denied extends Remaining {
  readonly success: false
  /**
   * Unix milliseconds at which this very call would be allowed; `Infinity` when `rate` exceeds the capacity.
   */
  readonly reset: number
  /**
   * Milliseconds from now until this very call would be allowed; `Infinity` when `rate` exceeds the capacity.
   */
  readonly retryAfter: number
}

/** The answer of a check. */
export type LimitResult = Allowed | Denied

/** The answer of several checks, of which all were consumed or none. */
export interface LimitAllResult<Request> {
  /** All were allowed and consumed. */
  readonly success: boolean
  /**
   * The answer of each limit, in the order of the calls. If another limit denies, a limit that would allow
   * still has `success: true`, but nothing was taken from it.
   */
  readonly results: readonly LimitResult[]
  /** The calls that deny, as they were given. */
  readonly denied: readonly Request[]
  /** Milliseconds from now until all would be allowed; 0 when they were, `Infinity` when never. */
  readonly retryAfter: number
}

/** Combines the results of several limits. */
export function together<Request>(
  requests: readonly Request[],
  results: readonly LimitResult[],
): LimitAllResult<Request> {
  return {
    success: results.every(({ success }) => success),
    results,
    denied: requests.filter((_, place) => !results[place]?.success),
    // A call that fits goes on fitting, so all fit when the last one does.
    retryAfter: Math.max(...results.map(({ retryAfter }) => retryAfter)),
  }
}

/** What a limiter's answers also report. */
export interface Reporting {
  /** Shares of the limit whose crossing the answer reports. */
  readonly thresholds: readonly number[]
  /** Whether a denial is only reported. */
  readonly dryRun: boolean
}

/**
 * The answer to the call in the given place (0 is the first) among the equal calls that were decided
 * together.
 */
export function answerOf(
  { rate, limiter, purpose }: Pick<Request, 'rate' | 'limiter' | 'purpose'>,
  decision: Decision,
  place: number,
  reporting: Reporting,
): LimitResult {
  const { granted, params } = decision
  if (purpose === 'take' && place >= granted) {
    return denying(denialOf(limiter, after(limiter, decision, granted * rate), rate), reporting)
  }
  // The capacity bounds refunds, so the part of one refund is unknown: each answer shows all of them.
  const taken = rate > 0 ? (place + 1) * rate : granted * rate
  const snapshot = after(limiter, decision, taken)
  const allowed: Allowed = {
    success: true,
    limit: params.limit,
    remaining: remainingOf(limiter, snapshot),
    reset: whenAvailable(limiter, snapshot, params.limit),
    retryAfter: 0,
  }
  const { thresholds } = reporting
  if (thresholds.length === 0 || rate <= 0) return allowed
  const crossed = crossedBetween(limiter, after(limiter, decision, taken - rate), snapshot, thresholds)
  return crossed.length > 0 ? { ...allowed, crossed } : allowed
}

function crossedBetween(
  limiter: Limiter,
  before: Snapshot,
  { state, now, params }: Snapshot,
  thresholds: readonly number[],
): number[] {
  const { numbers, tolerance, peak } = limiter.algorithm
  const share = (amount: number) => (amount + tolerance) / params.limit
  const most = peak ? before.state[peak] : numbers.used(before.state, before.now, params)
  const [from, to] = [share(most), share(numbers.used(state, now, params))]
  return thresholds.filter((threshold) => from < threshold && to >= threshold)
}

/** The snapshot after an amount was taken from it. */
export function after({ algorithm }: Limiter, snapshot: Snapshot, amount: number): Snapshot {
  if (amount === 0) return snapshot
  const { state, now, params } = snapshot
  const next = algorithm.numbers.consume(state, now, amount, params)
  // An algorithm reads its own columns only.
  return { now, params, state: next as Snapshot['state'] }
}

/** A dry run reports the denial and lets the call pass. */
export function denying(denied: Denied, { dryRun }: Reporting): LimitResult {
  return dryRun ? { ...denied, success: true, retryAfter: 0, wouldDeny: denied } : denied
}

/** The answer to a call that the snapshot does not allow. */
export function denialOf(limiter: Limiter, snapshot: Snapshot, rate: number): Denied {
  const reset = whenAvailable(limiter, snapshot, rate)
  return {
    success: false,
    limit: snapshot.params.limit,
    remaining: remainingOf(limiter, snapshot),
    reset,
    retryAfter: reset - snapshot.now,
  }
}

/** The answer of a look. */
export function usageOf(limiter: Limiter, snapshot: Snapshot): Usage {
  const { kind, numbers } = limiter.algorithm
  const { state, now, params } = snapshot
  return {
    limit: params.limit,
    remaining: remainingOf(limiter, snapshot),
    reset: whenAvailable(limiter, snapshot, params.limit),
    used: numbers.used(state, now, params),
    ...(kind === 'window' ? { start: params['periodStart'] ?? state.windowStart } : {}),
  }
}

/** The answer of an unlimited plan: always allowed, and full at `now`. */
export function unlimitedAnswer(now: number): Allowed {
  const limit = Number.POSITIVE_INFINITY
  return { success: true, limit, remaining: limit, reset: now, retryAfter: 0 }
}

/** How much a call may take, by the rule of the statement that grants it. */
export function availableIn({ algorithm }: Limiter, { state, now, params }: Snapshot): number {
  return algorithm.numbers.available(state, now, params) + algorithm.tolerance
}

/** Whole units that could be taken. */
export function remainingOf(limiter: Limiter, snapshot: Snapshot): number {
  return Math.max(Math.floor(availableIn(limiter, snapshot)), 0)
}
