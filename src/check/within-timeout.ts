import { type At, CallTime } from './bounds.ts'
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
  const timeoutMs = Math.min(...checkers.map(timeoutOf))
  const isAlone = at === undefined && !checkers[0]?.joined(at)
  if (!isAlone || timeoutMs === Number.POSITIVE_INFINITY) return work(at)
  const time = new CallTime(timeoutMs)
  try {
    return await work(time)
  } finally {
    time.stop()
  }
}

/** Infinity if there is none. */
export function timeoutOf({ config }: Checker): number {
  return config.bounds?.timeoutMs ?? Number.POSITIVE_INFINITY
}
