import type { Outcome } from '../answers/outcome.ts'
import { whenAborted } from '../base/abort.ts'
import { startDeadline } from '../base/deadlines.ts'
import type { Database } from '../database/database.ts'
import { RatelimitError } from '../errors.ts'

/** The time of a call that may take several statements. */
export class CallTime {
  isOver = false
  readonly #ends = new Set<() => void>()
  readonly #stop: () => void

  constructor(ms: number) {
    this.#stop = startDeadline(ms, () => {
      this.isOver = true
      for (const end of this.#ends) end()
    })
  }

  /** Calls `end` when the time is over. Returns a function that stops that. */
  whenOver(end: () => void): () => void {
    this.#ends.add(end)
    return () => this.#ends.delete(end)
  }

  /** The call has ended. */
  stop(): void {
    this.#stop()
  }
}

/** Where a call runs: in a transaction, or alone. Alone, it may have begun its time already. */
export type At = Database | CallTime | undefined

/** When to stop waiting for a call. */
export interface Bounds {
  /** When the time of the whole call is over. */
  readonly time?: CallTime
  /** This many milliseconds after the call. */
  readonly timeoutMs?: number | undefined
  /** As soon as this signal aborts. */
  readonly signal?: AbortSignal | undefined
  /**
   * Called when the time is over, if `timeoutMs` is the rest of a wait of `blockUntilReady`. Its end says
   * nothing about the database.
   */
  readonly onWaitOver?: (() => void) | undefined
  /** Gets a grant that comes after the wait has ended, to give it back. It never rejects. */
  readonly giveBack?: (outcome: Outcome) => Promise<void>
}

/**
 * Calls `end` once when a bound is reached, with the signal's reason if the signal aborted. The signal must not
 * have aborted before.
 *
 * @returns A function that stops the watch. Call it when the call is decided.
 */
export function watchBounds(
  { time, timeoutMs, signal }: Bounds,
  end: (why: { readonly aborted: unknown } | 'timeout') => void,
): () => void {
  const onOver = () => finish('timeout')
  const stopTimer = time
    ? time.whenOver(onOver)
    : startDeadline(timeoutMs ?? Number.POSITIVE_INFINITY, onOver)
  const stopSignal = signal && whenAborted(signal, () => finish({ aborted: signal.reason }))
  function stop(): void {
    stopTimer()
    stopSignal?.()
  }
  function finish(why: { readonly aborted: unknown } | 'timeout'): void {
    stop()
    end(why)
  }
  return stop
}

/** The error of a call whose time is over. A look is never charged. */
export function timedOut(mayBeCharged: boolean, contended: boolean): RatelimitError {
  return mayBeCharged
    ? new RatelimitError(
        'OUTCOME_UNKNOWN',
        'The time was over before the database answered: the call may or may not have taken effect.',
        { contended },
      )
    : new RatelimitError('TIMEOUT', 'The time was over before the database answered. Nothing was charged.', {
        contended,
      })
}
