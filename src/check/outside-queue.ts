import { nothingCharged } from '../database/database-error.ts'
import { type Sending, withdraw } from '../database/sending.ts'
import { RatelimitError } from '../errors.ts'
import { afterWait } from '../runtime/blame.ts'
import { type Bounds, timedOut, watchBounds } from './bounds.ts'
import type { Checker } from './checker.ts'

/** How far some work has come. It decides the error if the time is over. */
export interface Stage {
  /** Whether it may have charged something by now. */
  mayCharge: boolean
  /** Whether it may be waiting for others. A timeout then says nothing about the database. */
  mayWait: boolean
  /** Whether it may have waited for its own keys: for rows that others hold, or behind other calls. */
  isContended: boolean
  /** Other work has the same one if it shares the statement. A failure of the statement then counts once. */
  statement?: object | undefined
  /** How far its statements have come. Undefined if they do not tell. */
  sending?: Sending | undefined
}

/** The admission of some work. */
export interface Entry<Found = undefined> {
  /** Resolves when the work may begin. Default: at once. */
  readonly comes?: Promise<Found>
  /** The work has ended. */
  leave(): void
  /** The caller of the work has given up. */
  giveUp?(): void
}

/**
 * Runs work on the database outside of the key queues. The number of such calls and their time are limited.
 * When the time is over, the call fails, and `isOver` is true for the work.
 *
 * @param enter Lets the work in, or throws `OVERLOADED`.
 */
export function outsideQueue<T, Found = undefined>(
  checker: Checker,
  stage: Readonly<Stage>,
  work: (isOver: () => boolean, found: Found | undefined) => T | Promise<T>,
  enter: (isOver: () => boolean) => Entry<Found> = () => ({ leave: checker.enter() }),
  bounds: Bounds | undefined = checker.alone.bounds,
): Promise<T> {
  const refusal = bounds?.time?.isOver ? timedOut(false, false) : checker.circuit.refusal()
  if (refusal) throw refusal
  let isOver = false
  const entry = enter(() => isOver)
  const begin = (found?: Found) => work(() => isOver, found)
  const running = (entry.comes ?? Promise.resolve(undefined)).then(begin).then(
    (result) => {
      entry.leave()
      checker.circuit.answered()
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
      const mayBeCharged = stage.mayCharge && !withdraw(stage.sending)
      entry.giveUp?.()
      const error = timedOut(mayBeCharged, stage.isContended)
      if (!stage.mayWait) checker.circuit.failed(error, stage.statement)
      reject(error)
    })
    running.then(
      (result) => {
        stopWatching()
        resolve(result)
      },
      (reason) => {
        stopWatching()
        reject(reason)
      },
    )
  })
}

/** The error of work that failed. Also counts the failure, even if the caller has given up. */
function learned(checker: Checker, stage: Readonly<Stage>, reason: unknown): unknown {
  if (!(reason instanceof RatelimitError)) return reason
  const known = stage.mayCharge ? reason : nothingCharged(reason)
  const error = stage.mayWait ? afterWait(known, stage.isContended) : known
  // Work that stops because its time is over had an answer from the database before, unless it never began.
  if (error.code !== 'TIMEOUT') checker.circuit.learn(error, stage.statement)
  else if (!stage.sending?.isWithdrawn) checker.circuit.answered()
  return error
}
