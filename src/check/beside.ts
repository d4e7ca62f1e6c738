import { RatelimitError } from '../errors.ts'
import { afterWait } from '../runtime/after-wait.ts'
import { timedOut, watchBounds } from './bounds.ts'
import type { Checker } from './checker.ts'

/** What work is about to do when its time is over. */
export interface Stage {
  /** It may have an effect by then. */
  mayCharge: boolean
  /** It may wait for others, which says nothing about the database. */
  mayWait: boolean
  /** It may have waited for its own keys: for rows that others hold, or behind other calls. */
  isContended: boolean
  /** The statement that it shares with other work: its failure counts once. */
  statement?: object | undefined
}

/** What the work waits for before it begins. */
export interface Entry<Found = undefined> {
  readonly comes?: Promise<Found>
  /** The work has ended. */
  leave(): void
  /** Nobody waits for the work any more. */
  giveUp?(): void
}

/**
 * Runs work on the database beside the queue: so much at once, and within the limiter's time. When the time is
 * over, the call fails, and `isOver` says so to the work.
 *
 * @param enter Lets the work in, or throws `OVERLOADED`.
 */
export function beside<T, Found = undefined>(
  checker: Checker,
  stage: Readonly<Stage>,
  work: (isOver: () => boolean, found: Found | undefined) => T | Promise<T>,
  enter: (isOver: () => boolean) => Entry<Found> = () => ({ leave: checker.room.enter() }),
): Promise<T> {
  const { bounds } = checker.config
  const refusal = checker.outage?.refusal()
  if (refusal) throw refusal
  let isOver = false
  const entry = enter(() => isOver)
  const begin = (found?: Found) => work(() => isOver, found)
  const running = (entry.comes ?? Promise.resolve(undefined)).then(begin).then(
    (result) => {
      entry.leave()
      checker.outage = undefined
      return result
    },
    (reason) => {
      entry.leave()
      throw learned(checker, stage, reason)
    },
  )
  if (!bounds) return running
  return new Promise((resolve, reject) => {
    const stopWatching = watchBounds(bounds, () => {
      isOver = true
      entry.giveUp?.()
      const error = timedOut(stage.mayCharge, stage.isContended)
      if (!stage.mayWait) checker.addFailure(error, stage.statement)
      reject(error)
    })
    running.then(resolve, reject).finally(stopWatching)
  })
}

/** The error that work has ended with, also if nobody waits for it any more. */
function learned(checker: Checker, stage: Readonly<Stage>, reason: unknown): unknown {
  if (!(reason instanceof RatelimitError)) return reason
  const error = stage.mayWait ? afterWait(reason) : reason
  // Work that finds out that its time is over has had an answer by then.
  if (error.code === 'TIMEOUT') checker.outage = undefined
  else checker.learnOf(error, stage.statement)
  return error
}
