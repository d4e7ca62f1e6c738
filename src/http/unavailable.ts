import { unavailable } from '../kernel/answers/made.ts'
import type { Denied } from '../kernel/answers/results.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'

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
