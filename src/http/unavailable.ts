import type { Limiter } from '../algorithms/algorithm.ts'
import type { Denied } from '../answers/results.ts'
import { RatelimitError } from '../errors.ts'

/** `retryAfter` of a denial that the database did not make. */
const RETRY_MS = 1_000

/** The denial of a request that the database did not decide. */
export function unavailable({ limit }: Limiter): Denied {
  const reset = Date.now() + RETRY_MS
  return { success: false, limit, remaining: 0, reset, retryAfter: RETRY_MS, degraded: true }
}

/** Whether a client can have caused the error. Then it must not let the request pass. */
export function isContended(error: unknown): boolean {
  return error instanceof RatelimitError && error.contended
}

/** Returns a denial instead of a contended error, for frameworks that may let requests pass after errors. */
export async function deniedIfContended<Answer>(
  answer: Promise<Answer>,
  limiter: Limiter,
): Promise<Answer | Denied> {
  try {
    return await answer
  } catch (error) {
    if (isContended(error)) return unavailable(limiter)
    throw error
  }
}
