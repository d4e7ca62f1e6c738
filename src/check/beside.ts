import { RatelimitError } from '../errors.ts'
import { timedOut, watchBounds } from './bounds.ts'
import type { Checker } from './checker.ts'

/**
 * Runs work on the database beside the queue: so much at once, and within the limiter's time. When the time is
 * over, the call fails, and `isOver` says so to the work; `isCharging` says whether the work may have an effect
 * by then.
 */
export async function beside<T>(
  checker: Checker,
  work: (isOver: () => boolean) => Promise<T>,
  isCharging: () => boolean = () => true,
): Promise<T> {
  const { bounds } = checker.config
  const refusal = checker.outage?.refusal()
  if (refusal) throw refusal
  const leave = checker.room.enter()
  let isOver = false
  const running = telling(
    checker,
    work(() => isOver),
  ).finally(leave)
  if (!bounds) return running
  return new Promise((resolve, reject) => {
    const stopWatching = watchBounds(bounds, () => {
      isOver = true
      reject(timedOut(isCharging()))
    })
    running.then(resolve, reject).finally(stopWatching)
  })
}

/** Tells how the work ended, also if nobody waits for it any more. */
async function telling<T>(checker: Checker, work: Promise<T>): Promise<T> {
  try {
    const result = await work
    checker.outage = undefined
    return result
  } catch (error) {
    // Work that gives up because its time is over has waited for rows.
    if (error instanceof RatelimitError && error.code !== 'TIMEOUT') checker.learnOf(error)
    throw error
  }
}
