import type { Requested } from '../options/calls.ts'
import { callOf, type OptionsOfCall } from '../options/validate.ts'
import type { LimiterCall } from './checker.ts'
import { handleOf } from './handles.ts'

/**
 * The call of a function on one key of a limiter.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_KEY`, `INVALID_RATE`, `INVALID_LIMIT`
 */
export async function callOn(
  ratelimit: Requested['ratelimit'],
  key: string,
  options: OptionsOfCall,
): Promise<LimiterCall> {
  const { checker } = handleOf(ratelimit, 'ratelimit must be a Ratelimit of this version of the package.')
  const { hash } = checker.terms
  const stored = hash ? await hash(key) : key
  return { checker, call: callOf(ratelimit.prefix, ratelimit.limiter, stored, options) }
}
