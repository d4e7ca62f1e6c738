import { RatelimitError } from '../errors.ts'
import type { Outcome } from './answer.ts'

/**
 * A longer timer fires at once:
 * https://developer.mozilla.org/docs/Web/API/Window/setTimeout#maximum_delay_value
 */
export const MAX_TIMER_MS: number = 2 ** 31 - 1

/** When to stop waiting for a call. */
export interface Bounds {
  /** So many milliseconds after the call. */
  readonly timeoutMs?: number | undefined
  /** When the signal aborts. */
  readonly signal?: AbortSignal | undefined
  /**
   * Called when the time is over, if the caller of `blockUntilReady` chose it. Its end says nothing about the
   * database.
   */
  readonly onWaitOver?: (() => void) | undefined
  /** Is given what is granted after the wait has ended, to give it back. It never rejects. */
  readonly giveBack?: (outcome: Outcome) => Promise<void>
}

/**
 * Calls `end` once when a bound is reached, with the signal's reason if it was the signal. The signal must
 * not have aborted before.
 *
 * @returns What to call when the call is decided: nothing ends it any more.
 */
export function watchBounds(
  { timeoutMs, signal }: Bounds,
  end: (why: { readonly aborted: unknown } | 'timeout') => void,
): () => void {
  const onAbort = () => finish({ aborted: signal?.reason })
  // A longer timer would fire at once. No call is under way for weeks.
  const isTimed = timeoutMs !== undefined && timeoutMs <= MAX_TIMER_MS
  const timer = isTimed ? setTimeout(() => finish('timeout'), timeoutMs) : undefined
  signal?.addEventListener('abort', onAbort, { once: true })
  function stop(): void {
    clearTimeout(timer)
    signal?.removeEventListener('abort', onAbort)
  }
  function finish(why: { readonly aborted: unknown } | 'timeout'): void {
    stop()
    end(why)
  }
  return stop
}

/** What to tell a call whose time is over. A look is never charged. */
export function timedOut(mayBeCharged: boolean, contended: boolean): RatelimitError {
  return mayBeCharged
    ? new RatelimitError(
        'OUTCOME_UNKNOWN',
        'The time was over before the database answered: the charge may or may not have been made.',
        { contended },
      )
    : new RatelimitError('TIMEOUT', 'The time was over before the database answered. Nothing was charged.', {
        contended,
      })
}
