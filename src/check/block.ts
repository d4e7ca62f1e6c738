import { RatelimitError } from '../errors.ts'
import type { Call } from '../runtime/call.ts'
import { wait } from '../runtime/wait.ts'
import type { Checker } from './checker.ts'
import type { LimitResult } from './results.ts'

/**
 * Checks again and again, each time when the denial before it said, until the call is allowed or the time is
 * over. A timeout of 0 checks once.
 */
export async function blockUntilReady(
  checker: Checker,
  call: Call,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<LimitResult> {
  const endsAt = performance.now() + timeoutMs
  let denial: LimitResult | undefined
  for (;;) {
    signal?.throwIfAborted()
    const ownMs = checker.config.bounds?.timeoutMs ?? Number.POSITIVE_INFINITY
    const leftMs = timeoutMs === 0 ? ownMs : Math.min(endsAt - performance.now(), ownMs)
    try {
      const bounds = { signal, givesBack: true, ...(Number.isFinite(leftMs) ? { timeoutMs: leftMs } : {}) }
      const { answer } = await checker.answer(call, undefined, bounds)
      if (answer.success || performance.now() + answer.retryAfter > endsAt) return answer
      denial = answer
    } catch (error) {
      // What was granted too late is given back, so the last answer still stands.
      if (denial && error instanceof RatelimitError && performance.now() >= endsAt) return denial
      throw error
    }
    await wait(Math.max(denial.retryAfter, 1), signal)
  }
}
