/** The member is counted. */
export interface Added {
  /** The member is counted. */
  readonly success: true
  /** Whether it was not counted before this call. */
  readonly isNew: boolean
  /** The most members that the key may have. */
  readonly limit: number
  /** How many more the key may have. */
  readonly remaining: number
  /** Unix milliseconds at which the key has no member, if none is added again. `Infinity` without a window. */
  readonly reset: number
  /** The call was allowed. */
  readonly retryAfter: 0
}

/** The key has as many members as it may have. Nothing was written. */
export interface NotAdded {
  /** The key has as many other members as it may have. */
  readonly success: false
  /** The most members that the key may have. */
  readonly limit: number
  /** Nothing is left. */
  readonly remaining: 0
  /** Unix milliseconds at which the same call would be allowed, if no member is added again until then. */
  readonly reset: number
  /** Milliseconds until then. `Infinity` without a window, and for a limit of 0. */
  readonly retryAfter: number
}

/** A member that a key has. */
export interface Counted {
  /** The member; with `hashKeys` its hash. */
  readonly member: string
  /** Unix milliseconds since which it has counted without a gap. */
  readonly since: number
  /** Unix milliseconds at which it was added last. */
  readonly seen: number
  /** Unix milliseconds from which it does not count. `Infinity` without a window. */
  readonly expires: number
}
