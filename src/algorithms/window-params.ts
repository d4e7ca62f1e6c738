import { type Duration, parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import type { CommonParam, Numbers } from './algorithm.ts'

/**
 * The parameters of both windows.
 *
 * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`
 */
export function windowParams(tokens: number, window: Duration): Numbers<CommonParam> {
  if (!Number.isSafeInteger(tokens) || tokens <= 0) {
    throw new RatelimitError('INVALID_LIMIT', 'tokens must be a whole number above 0.')
  }
  return { limit: tokens, periodMs: parseDuration(window, 'The window') }
}
