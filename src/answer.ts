import type { Limiter } from './algorithms/algorithm.ts'
import type { Call, Decision, Standing } from './runtime/decide.ts'

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
  /** What has been used: of a bucket in tokens, of a window in units; more than the limit in debt or after a downgrade. */
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
  /** Unix milliseconds at which this very call would be allowed; `Infinity` when `rate` exceeds the capacity. */
  readonly reset: number
  /** Milliseconds from now until this very call would be allowed; `Infinity` when `rate` exceeds the capacity. */
  readonly retryAfter: number
}

/** The answer of a check. */
export type LimitResult = Allowed | Denied

/** The answer of several checks, of which all were consumed or none. */
export interface LimitAllResult<Request> {
  /** All were allowed and consumed. */
  readonly success: boolean
  /**
   * What each limit says by itself, in the order of the calls. When another one denies, one that would allow has
   * `success: true` all the same, and what it has is as it was.
   */
  readonly results: readonly LimitResult[]
  /** The calls that deny, as they were given. */
  readonly denied: readonly Request[]
  /** Milliseconds from now until all would be allowed; 0 when they were, `Infinity` when never. */
  readonly retryAfter: number
}

/** What several results mean together. */
export function together<Request>(
  requests: readonly Request[],
  results: readonly LimitResult[],
): LimitAllResult<Request> {
  return {
    success: results.every(({ success }) => success),
    results,
    denied: requests.filter((_, place) => !results[place]?.success),
    // What fits once goes on fitting: all do when the last one does.
    retryAfter: Math.max(...results.map(({ retryAfter }) => retryAfter)),
  }
}

/** The answer to the call in the given place (0 is the first) among the equal calls that were decided together. */
export function answerOf(call: Call, decision: Decision, place: number): LimitResult {
  const { rate, limiter, thresholds } = call
  const { algorithm } = limiter
  const { state, now, granted, params, peak } = decision
  if (place >= granted) return denying(call, denialOf(call, decision))
  // The state is the one after all of them; what came after this call is put back. Refunds are bounded by the capacity,
  // so that none can be told from those beside it: each sees them all.
  const undone = (granted - 1 - place) * Math.max(rate, 0)
  const used = algorithm.usedAt(state, now, params) - undone
  const share = (amount: number) => (amount + algorithm.tolerance) / params.limit
  const [before, after] = [share(Math.max(peak, used - rate)), share(used)]
  const crossed = thresholds.filter((threshold) => rate > 0 && before < threshold && after >= threshold)
  return {
    success: true,
    limit: params.limit,
    remaining: wholeUnits(availableOf(limiter, decision, undone)),
    reset: algorithm.wholeAt(state, now, undone, params),
    retryAfter: 0,
    ...(crossed.length > 0 ? { crossed } : {}),
  }
}

/** A dry run tells what it would have denied, and lets it pass. */
export function denying({ dryRun }: Call, denied: Denied): LimitResult {
  return dryRun ? { ...denied, success: true, retryAfter: 0, wouldDeny: denied } : denied
}

/** The answer to a call that the standing does not allow. */
export function denialOf({ rate, limiter }: Pick<Call, 'rate' | 'limiter'>, standing: Standing): Denied {
  const { state, now, params } = standing
  const reset = limiter.algorithm.fitsAt(state, now, rate, params)
  const remaining = wholeUnits(availableOf(limiter, standing))
  return { success: false, limit: params.limit, remaining, reset, retryAfter: reset - now }
}

/** The answer of a look. */
export function usageOf(limiter: Limiter, standing: Standing): Usage {
  const { algorithm } = limiter
  const { state, now, params } = standing
  return {
    limit: params.limit,
    remaining: wholeUnits(availableOf(limiter, standing)),
    reset: algorithm.wholeAt(state, now, 0, params),
    used: algorithm.usedAt(state, now, params),
    ...(algorithm.writtenAt === 'windowStart' ? { start: params['periodStart'] ?? state.windowStart } : {}),
  }
}

/** What has no limit is always allowed; `now` is when it is whole. */
export function unlimitedAnswer(now: number): Allowed {
  const limit = Number.POSITIVE_INFINITY
  return { success: true, limit, remaining: limit, reset: now, retryAfter: 0 }
}

/** How much a call may take, by the rule of the statement that grants it; `undone` of what was taken is not counted. */
export function availableOf({ algorithm }: Limiter, { state, now, params }: Standing, undone = 0): number {
  return algorithm.availableAt(state, now, undone, params) + algorithm.tolerance
}

export function wholeUnits(available: number): number {
  return Math.max(Math.floor(available), 0)
}
