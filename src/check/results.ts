import type { EndedPeriod } from '../algorithms/algorithm.ts'

/** What is left of a limit. */
export interface Remaining {
  /** The capacity: `tokens` or `maxTokens`. */
  readonly limit: number
  /** Whole units that could be taken now; never below 0. */
  readonly remaining: number
  /**
   * Unix milliseconds at which the limit is full again if nothing more is consumed. `Infinity` for a look at a
   * new key of a bucket with `initialTokens`: the bucket begins to fill with the first check.
   */
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
  /** The call was allowed and consumed. */
  readonly success: true
  /** Nothing has to be waited for. */
  readonly retryAfter: 0
  /**
   * Of windows: Unix milliseconds at which the window began that was charged. A refund that names it as its
   * `start` goes to no other.
   */
  readonly start?: number
  /** With `atLeast`: how much of the rate was granted. */
  readonly granted?: number
  /**
   * Of a negative rate, of `release`, and of a `commit` below the estimate: how much was given back. That is at
   * most what was used, and nothing after the window that paid.
   */
  readonly returned?: number
  /** The `thresholds` that this very call has crossed by what it used. A denial crosses none. */
  readonly crossed?: readonly number[]
  /**
   * The key's period before this one, if this very call has opened the new one of a fixed or calendar window,
   * and the old row was still there.
   */
  readonly ended?: EndedPeriod
  /** With `dryRun`: the denial that this call would have been. Nothing was consumed. */
  readonly wouldDeny?: Denied
  /** The database did not answer, and `onError: 'allow'` let the call pass; `remaining` is not known. */
  readonly degraded?: true
}

/** Denied; nothing was consumed or written. */
export interface Denied extends Remaining {
  /** The call was denied. */
  readonly success: false
  /**
   * Unix milliseconds at which this very call would be allowed; `Infinity` if `rate` exceeds the capacity.
   */
  readonly reset: number
  /**
   * Milliseconds from now until this very call would be allowed; `Infinity` if `rate` exceeds the capacity.
   */
  readonly retryAfter: number
  /**
   * The database did not answer, and `onError` denied the call; `remaining` is not known. `'allow'` denies
   * calls that have waited for their own key.
   */
  readonly degraded?: true
}

/** The answer of a check. */
export type LimitResult = Allowed | Denied

/** What there was, from `atLeast` to the rate. */
export interface Granted {
  /** How much was granted. */
  readonly granted: number
}

/** The answer of several checks, of which all were consumed or none. */
export interface LimitAllResult<Request> {
  /** All were allowed and consumed. */
  readonly success: boolean
  /**
   * The answer of each limit, in the order of the calls. If another limit denies, a limit that would allow
   * still has `success: true`, as a forced call has, but nothing was taken from it.
   */
  readonly results: readonly LimitResult[]
  /** The calls that deny, as they were given. */
  readonly denied: readonly Request[]
  /** Milliseconds from now until all would be allowed; 0 if they were, `Infinity` if they never would be. */
  readonly retryAfter: number
}
