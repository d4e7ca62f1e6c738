import type { Checker } from '../kernel/engine/checker.ts'
import type { FundedCall } from '../kernel/engine/funds.ts'
import type { FundedOptions } from '../kernel/engine/handles.ts'
import type { Credits } from '../kernel/limits/credits.ts'
import { callOf } from '../kernel/options/validate.ts'
import { limiterOf } from './grant.ts'
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
