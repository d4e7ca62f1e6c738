import type { Outcome } from '../answers/outcome.ts'
import { startDeadline } from '../base/deadlines.ts'
import { RatelimitError } from '../errors.ts'

/**
 * The longest timer. A longer one fires at once.
 * https://developer.mozilla.org/docs/Web/API/Window/setTimeout#maximum_delay_value
 */
export const MAX_TIMER_MS: number = 2 ** 31 - 1

/** When to stop waiting for a call. */
export interface Bounds {
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
  { timeoutMs, signal }: Bounds,
  end: (why: { readonly aborted: unknown } | 'timeout') => void,
): () => void {
  const onAbort = () => finish({ aborted: signal?.reason })
  // No call takes weeks.
  const isTimed = timeoutMs !== undefined && timeoutMs <= MAX_TIMER_MS
  const stopTimer = isTimed ? startDeadline(timeoutMs, () => finish('timeout')) : undefined
  signal?.addEventListener('abort', onAbort, { once: true })
  function stop(): void {
    stopTimer?.()
    signal?.removeEventListener('abort', onAbort)
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
