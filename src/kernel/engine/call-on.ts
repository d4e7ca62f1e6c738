import type { OptionsOfCall } from '../options/validate.ts'
import type { LimiterCall } from './checker.ts'
import { calledBy, handleOf } from './handles.ts'

/**
 * The call of a function on one key of a limiter.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_KEY`, `INVALID_RATE`
 */
export async function callOn(ratelimit: object, key: string, options: OptionsOfCall): Promise<LimiterCall> {
  const handle = handleOf(ratelimit, 'ratelimit must be a limiter of this version of the package.')
  return calledBy(handle, key, options)
}
