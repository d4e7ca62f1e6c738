import type { EndedPeriod } from '../limits/algorithm.ts'
import type { Threshold } from '../options/choices.ts'

/** The state of a limit. */
export interface Remaining {
  /** The capacity: `tokens` or `maxTokens`. */
  readonly limit: number
  /** Whole units that can be taken now; never below 0. */
  readonly remaining: number
  /**
   * Unix milliseconds at which the limit is full again if nothing more is consumed. `Infinity` for a look at a
   * new key of a bucket with `initialTokens`, because that begins to fill with the first check.
   */
  readonly reset: number
}

/** The answer of a look. */
export interface Usage extends Remaining {
  /**
   * Used tokens or units. In debt or after a downgrade it is more than the limit. A block of a lockout's key by
   * hand uses up the whole limit; with `blocks()` a block changes nothing that was used.
   */
  readonly used: number
  /** Only for windows: Unix milliseconds at which the current window began, or would begin now. */
  readonly start?: number
  /** Unix milliseconds at which the block of the key ends. Only while the key is blocked. */
  readonly blockedUntil?: number
}

/** Allowed and consumed. `remaining` and `reset` are those after the call. */
export interface Allowed extends Remaining {
  /** The call was allowed and consumed. */
  readonly success: true
  /** There is no need to wait. */
  readonly retryAfter: 0
  /**
   * Only for windows: Unix milliseconds at which the charged window began. A refund with this `start` goes to
   * no other window.
   */
  readonly start?: number
  /**
   * Only for lockouts: Unix milliseconds at which the block ends that this call has started. Of all allowed
   * calls, only that one has it.
   */
  readonly blockedUntil?: number
  /** With `atLeast`: how much of the rate was granted. */
  readonly granted?: number
  /**
   * How much was given back, by a negative rate, a `release`, or a `commit` below the estimate. At most the
   * used amount, and 0 after the end of the window that paid.
   */
  readonly returned?: number
  /** The `thresholds` that this call has crossed. A denial crosses none. */
  readonly crossed?: readonly Threshold[]
  /**
   * The last period of the key, if this call has opened the next period of a fixed or calendar window and the
   * row of the last one still existed.
   */
  readonly ended?: EndedPeriod
  /**
   * With `grace`: the change of a period that was handed out before its estimate was settled. `used` is below 0
   * if the cost was below the estimate. Add it to what was billed for the period.
   */
  readonly correction?: EndedPeriod
  /**
   * With `once`: the id was used before, so this call has charged nothing. `remaining` and `reset` are the
   * present ones.
   */
  readonly repeated?: true
  /**
   * The process has answered from units that it had prefetched. `remaining` is what is left of them, so the
   * limit has at least as much left, and `reset` is the time at which it is full again after all were used.
   */
  readonly prefetched?: true
  /** With `dryRun`: the denial that this call would have got. Nothing was consumed. */
  readonly wouldDeny?: Denied
  /** The database did not answer, and `onError: 'allow'` let the call pass. `remaining` is not known. */
  readonly degraded?: true
}

/** Denied; nothing was consumed or written. */
export interface Denied extends Remaining {
  /** The call was denied. */
  readonly success: false
  /** Unix milliseconds at which the same call would be allowed. `Infinity` if `rate` exceeds the capacity. */
  readonly reset: number
  /** Milliseconds until the same call would be allowed. `Infinity` if `rate` exceeds the capacity. */
  readonly retryAfter: number
  /**
   * Unix milliseconds at which the block of the key ends. Only while the key is blocked. `reset` is later if
   * the limit has too little then.
   */
  readonly blockedUntil?: number
  /**
   * The database did not answer, and `onError` denied the call. `remaining` is not known. `'allow'` also denies
   * calls that have waited for their own key.
   */
  readonly degraded?: true
}

/** The answer of a check. */
export type LimitResult = Allowed | Denied

/** The granted part of a rate, for calls with `atLeast`. */
export interface Granted {
  /** Granted units, from `atLeast` to the rate. */
  readonly granted: number
}

/** The answer of several checks. All of them were consumed, or none was. */
export interface LimitAllResult<Request> {
  /** All were allowed and consumed. */
  readonly success: boolean
  /**
   * The answer of each limit, in the order of the calls. A call that would be allowed, or is forced, has
   * `success: true` even if another call is denied and nothing was taken.
   */
  readonly results: readonly LimitResult[]
  /** With `once`: the id was used before, so this call has charged nothing. */
  readonly repeated?: true
  /** The denied calls, as they were given. */
  readonly denied: readonly Request[]
  /** Milliseconds until all would be allowed. 0 if they were, `Infinity` if they never would be. */
  readonly retryAfter: number
}
