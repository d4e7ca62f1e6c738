import type { At } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'

/**
 * The rest of a call that has changed something already. If it fails, its error must not say that nothing was
 * changed. In a transaction that the call joins, the caller decides what becomes of the change.
 *
 * @param about What was done, and what to do.
 */
export async function afterChange<T>(
  checker: Checker,
  at: At,
  about: string,
  rest: () => Promise<T>,
): Promise<T> {
  try {
    return await rest()
  } catch (cause) {
    throw checker.joined(at) ? cause : new RatelimitError('OUTCOME_UNKNOWN', about, { cause })
  }
}
