import type { LimitResult } from '../kernel/answers/results.ts'
import { whenAborted } from '../kernel/base/abort.ts'
import { MAX_TIMER_MS } from '../kernel/base/deadlines.ts'
import { checkOption } from '../kernel/options/validate.ts'

/** How long a call waits to be allowed. */
export interface Patience {
  /** 0 tries once. */
  readonly timeoutMs: number
  readonly signal: AbortSignal | undefined
}

type Tried = Pick<LimitResult, 'success' | 'retryAfter'> & { readonly mayBeCharged: boolean }

/**
 * Tries again after each `retryAfter`, until the answer is an allowance, or until no later one can come in
 * time. A try that may have charged is the last one, because the next one could charge again.
 *
 * @param attempt Gets the rest of the time, and the last denial. If it returns that one, the time is over.
 * @param onWait Called before each wait.
 */
export async function untilAllowed<T extends Tried>(
  { timeoutMs, signal }: Patience,
  attempt: (leftMs: number, denial: T | undefined) => Promise<T>,
  onWait: (waitMs: number, denial: T) => void,
): Promise<T> {
  const endsAt = performance.now() + timeoutMs
  let denial: T | undefined
  for (;;) {
    signal?.throwIfAborted()
    const leftMs = timeoutMs === 0 ? Number.POSITIVE_INFINITY : endsAt - performance.now()
    const answer = await attempt(leftMs, denial)
    const isLast = answer.success || answer.mayBeCharged || answer === denial
    if (isLast || performance.now() + answer.retryAfter > endsAt) return answer
    denial = answer
    const waitMs = Math.max(answer.retryAfter, 1)
    onWait(waitMs, answer)
    await wait(waitMs, signal)
  }
}

/** @throws RatelimitError `INVALID_OPTION` */
export function checkSignal(signal: AbortSignal | undefined): void {
  const isLeftOut = signal === undefined || signal === null
  checkOption(isLeftOut || isSignal(signal), 'signal must be an AbortSignal.')
}

/** Whether it is an AbortSignal. `instanceof` fails for signals of another realm. */
function isSignal({ throwIfAborted, addEventListener }: AbortSignal): boolean {
  return typeof throwIfAborted === 'function' && typeof addEventListener === 'function'
}

/** Waits for any length of time. Rejects with the signal's reason as soon as the signal aborts. */
export async function wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
  for (let leftMs = ms; leftMs > 0; leftMs -= MAX_TIMER_MS) {
    await timer(Math.min(leftMs, MAX_TIMER_MS), signal)
  }
}

function timer(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted()
    const timeout = setTimeout(() => {
      stopSignal?.()
      resolve()
    }, ms)
    const stopSignal =
      signal &&
      whenAborted(signal, () => {
        clearTimeout(timeout)
        reject(signal.reason)
      })
  })
}
