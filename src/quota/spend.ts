import { spend as names, type SpendOptions } from '../estimates/options.ts'
import type { Spent } from '../estimates/spend-from.ts'
import { checkOptions } from '../kernel/base/check-options.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import type { CreditSpendRequest, SpendRequest } from './requests.ts'

const spending = /* @__PURE__ */ onFirstUse(() => import('../estimates/spend-from.ts'))

/**
 * Takes one cost from several limits: as much as the first has, the rest from the next, and so on. It takes all
 * of the cost or nothing. If the cost is an estimate, `commit` settles the actual cost.
 *
 * The limits can be `Credits`. With dated credits, the call is two statements. There is one more if the second
 * one shows that the limit before the credits has too little.
 *
 * It runs as `limitAll` does, and locks the rows in the same order. If one of the limits counts whole units,
 * all of them give whole units. During an outage it always throws; `onError` does not apply.
 *
 * @throws RatelimitError `INVALID_RATE` for a negative rate, and an `atLeast` that is not above 0;
 * `INVALID_OPTION` for a limiter with `dryRun`, and for two requests for one row; the errors of `limitAll`.
 *
 * @example
 * ```ts
 * import type { Ratelimit } from 'drizzle-ratelimit'
 * import type { Credits } from 'drizzle-ratelimit/credits'
 * import { spend } from 'drizzle-ratelimit/quota'
 *
 * declare const monthly: Ratelimit
 * declare const credits: Credits
 * const spent = await spend(
 *   [
 *     { ratelimit: monthly, key: 'org:1' },
 *     { ratelimit: credits, key: 'org:1' },
 *   ],
 *   { rate: 500 },
 * )
 * if (spent.success) {
 *   const [fromMonth, fromCredits] = spent.granted
 *   await spent.commit(620) // the actual cost; `spent.release()` if the work has failed
 * }
 * ```
 */
export async function spend(
  requests: readonly (SpendRequest | CreditSpendRequest)[],
  options: SpendOptions,
): Promise<Spent> {
  checkOptions(options, names)
  const { spendFrom } = await spending()
  return await spendFrom(requests, options)
}
