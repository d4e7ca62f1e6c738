import type { PaidByFunds } from '../estimates/funds.ts'
import type { Answered } from '../kernel/answers/answer.ts'
import type { LimitResult } from '../kernel/answers/results.ts'
import type { FundedOptions } from '../kernel/engine/handles.ts'
import { answerOnce } from '../kernel/lists/limit-all.ts'
import { callOf } from '../kernel/options/validate.ts'
import { mayHaveCharged } from '../shared/may-have-charged.ts'
import type { CreditLimitOptions } from './options.ts'
import { fundsOf, sumOf } from './purse.ts'
import { accountOf } from './read.ts'
import type { Account } from './seen.ts'

// What only the calls of dated credits need. It is loaded on first use.

export { grant, grantsOf, voidGrant } from './grants.ts'
export { accountOf, readUsage } from './read.ts'

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

/** What was given back in the end. If others have given back to the same grants meanwhile, it tries again. */
export async function givenBack(
  account: Account,
  { rate = 1, tx }: CreditLimitOptions,
  { answer, parts = [] }: Answered,
): Promise<LimitResult> {
  if (!answer.success || answer.repeated) return answer
  const { returned = 0 } = answer
  if (returned >= sumOf(parts)) return answer
  const rest = { rate: rate + returned, tx }
  try {
    const call = fundedCall(account, account.key, rest)
    const more = await givenBack(account, rest, await answerOnce(call, undefined, tx))
    return more.success ? { ...more, returned: returned + (more.returned ?? 0) } : answer
  } catch (error) {
    // What was given back until now counts, unless the transaction is lost anyway.
    if (account.checker.joined(tx) || mayHaveCharged(error)) throw error
    return answer
  }
}
