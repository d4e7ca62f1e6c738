import { RatelimitError } from '../errors.ts'
import { timedOut, watchBounds } from './bounds.ts'
import type { Checker } from './checker.ts'

/** What work is about to do when its time is over. */
export interface Stage {
  /** It may have an effect by then. */
  mayCharge: boolean
  /** It may wait for a row that others hold, which says nothing about the database. */
  mayWait: boolean
}

/**
 * Runs work on the database beside the queue: so much at once, and within the limiter's time. When the time is
 * over, the call fails, and `isOver` says so to the work.
 */
export async function beside<T>(
  checker: Checker,
  stage: Readonly<Stage>,
  work: (isOver: () => boolean) => Promise<T>,
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
      const error = timedOut(stage.mayCharge)
      if (!stage.mayWait) checker.learnOf(error)
      reject(error)
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
    // Work that finds out that its time is over has had an answer by then.
    if (error instanceof RatelimitError && error.code === 'TIMEOUT') checker.outage = undefined
    else if (error instanceof RatelimitError) checker.learnOf(error)
    throw error
  }
}
