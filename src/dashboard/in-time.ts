import { timedOut } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'

/**
 * Reads for the page within the limiter's `timeout`. A view reads more than a call does, so one that is too
 * slow says nothing about calls, and does not open the circuit for them.
 *
 * @throws RatelimitError `TIMEOUT`
 */
export function inTime<T>(checker: Checker, read: () => Promise<T>): Promise<T> {
  const time = checker.joined(undefined) ? undefined : checker.alone.bounds?.time
  if (!time) return read()
  return new Promise((resolve, reject) => {
    const wait = time.begin({ over: () => reject(timedOut(false, false)) })
    read()
      .finally(() => wait.stop())
      .then(resolve, reject)
  })
}
