import type { PaidByFunds } from '../estimates/funds.ts'
import type { FundedOptions } from '../kernel/engine/handles.ts'
import { callOf } from '../kernel/options/validate.ts'
import { fundsOf } from './purse.ts'
import { accountOf } from './read.ts'
import type { Account } from './seen.ts'

/**
 * The call on the grants of a key.
 *
 * @throws RatelimitError `INVALID_KEY`, `INVALID_RATE`, `INVALID_OPTION`
 */
export function fundedCall(
  { checker, limiter }: Pick<Account, 'checker' | 'limiter'>,
  key: string,
  options: FundedOptions,
): PaidByFunds {
  const account = accountOf(checker, limiter, key)
  const { rate, force, atLeast } = options
  const call = callOf(checker.rows.namespace.prefix, limiter, key, { rate, force, atLeast })
  return { checker, call, funds: fundsOf(account) }
}
