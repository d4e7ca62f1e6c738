import { MAX_TIMER_MS } from './bounds.ts'

/** Waits for any length of time. Rejects with the signal's reason as soon as the signal aborts. */
export async function wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
  for (let leftMs = ms; leftMs > 0; leftMs -= MAX_TIMER_MS) {
    await timer(Math.min(leftMs, MAX_TIMER_MS), signal)
  }
}

function timer(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted()
    const done = () => {
      signal?.removeEventListener('abort', aborted)
      resolve()
    }
    const timeout = setTimeout(done, ms)
    const aborted = () => {
      clearTimeout(timeout)
      reject(signal?.reason)
    }
    signal?.addEventListener('abort', aborted, { once: true })
  })
}
