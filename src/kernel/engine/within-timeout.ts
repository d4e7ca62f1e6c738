import type { At } from './bounds.ts'
import { CallTime } from './call-time.ts'
import type { Checker } from './checker.ts'

/**
 * Runs the statements of a call within the shortest `timeout` of its limiters, which is one time for all of
 * them. In a transaction a call has no timeout, and as a part of another call it has no time of its own.
 */
export async function withinTimeout<T>(
  checkers: readonly Checker[],
  at: At,
  work: (at: At) => Promise<T>,
): Promise<T> {
  const [first] = checkers
  const timeout = first && shortestTimeoutOf(checkers).alone.bounds?.time
  if (!timeout || at !== undefined || first.joined(at)) return work(at)
  const time = new CallTime(timeout)
  try {
    return await work(time)
  } finally {
    time.stop()
  }
}

/** The limiter with the shortest `timeout`. */
export function shortestTimeoutOf(checkers: readonly Checker[]): Checker {
  return checkers.reduce((one, other) => (timeoutOf(other) < timeoutOf(one) ? other : one))
}

/** Infinity if there is none. */
function timeoutOf({ alone }: Checker): number {
  return alone.bounds?.time.ms ?? Number.POSITIVE_INFINITY
}
