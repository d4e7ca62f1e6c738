/** A moment by the two clocks of this process, or by the injected one. In milliseconds. */
export interface Moment {
  /** By the monotonic clock. It does not jump, but it stands still while the machine is suspended. */
  readonly steadyMs: number
  /** By the clock that people set. It goes on during a suspension, but it may jump. */
  readonly wallMs: number
}

/** @param clock The injected clock. Default: those of this process. */
export function momentBy(clock: (() => number) | undefined): Moment {
  if (!clock) return { steadyMs: performance.now(), wallMs: Date.now() }
  const ms = clock()
  return { steadyMs: ms, wallMs: ms }
}

/**
 * The time between two moments. If the clocks differ, the longer one: a wrong clock only ends what is
 * remembered early.
 */
export function passedMs(since: Moment, now: Moment): number {
  return Math.max(now.steadyMs - since.steadyMs, now.wallMs - since.wallMs)
}

/** The least time that can have passed: the wall clock is read in whole milliseconds, rounded down. */
export function leastPassedMs(since: Moment, now: Moment): number {
  return Math.max(now.steadyMs - since.steadyMs, now.wallMs - since.wallMs - 1)
}
