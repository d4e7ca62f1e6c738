import type { Limiter } from '../algorithms/algorithm.ts'
import type { Denied } from '../check/results.ts'
import { RatelimitError } from '../errors.ts'

/** When to ask again after a denial that the database did not make. */
const RETRY_MS = 1_000

/** The denial of a request that the database did not decide. */
export function unavailable({ limit }: Limiter): Denied {
  const reset = Date.now() + RETRY_MS
  return { success: false, limit, remaining: 0, reset, retryAfter: RETRY_MS, degraded: true }
}

/** A client can bring it about, so it must not pass by it. */
export function isContended(error: unknown): boolean {
  return error instanceof RatelimitError && error.contended
}

/** A denial in place of a contended error, for frameworks that can be told to let errors pass. */
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
