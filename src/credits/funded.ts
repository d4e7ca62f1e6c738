import type { Credits } from '../algorithms/credits.ts'
import { limiterOf } from '../algorithms/grant.ts'
import type { Checker } from '../check/checker.ts'
import type { FundedCall } from '../check/funds.ts'
import type { FundedOptions } from '../check/handles.ts'
import { callOf } from '../options/validate.ts'
import { fundsOf } from './purse.ts'
import { accountOf } from './read.ts'

/**
 * The call on the credits of a key, for a list.
 *
 * @throws RatelimitError `INVALID_KEY`, `INVALID_RATE`, `INVALID_OPTION`
 */
export function fundedCall(
  checker: Checker,
  credits: Credits,
  key: string,
  options: FundedOptions,
): FundedCall {
  const account = accountOf({ checker, credits, key })
  const call = callOf(checker.rows.namespace.prefix, limiterOf(credits), key, options)
  return { checker, call, funds: fundsOf(account), force: options.force === true }
}
