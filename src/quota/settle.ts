import type { SettledAll } from '../estimates/costs.ts'
import type { SettleOptions } from '../estimates/settle-options.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import type { CreditSpendRequest, SpendRequest } from './requests.ts'

const byName = /* @__PURE__ */ onFirstUse(() => import('../estimates/by-name.ts'))

/**
 * Settles by their name what `reserveAll` or `spend` has charged, all or nothing: from any process, and once.
 * Again with the same cost it charges nothing, and the answer has `repeated: true`.
 *
 * The limits of `reserveAll` have a cost each, and those of `spend` have one cost together.
 *
 * @param requests All limits and keys that were charged; those of `spend` in the same order. If one is missing,
 * the others pay the whole cost, and it stays charged. If one had a `limiter`, give one here too: the
 * customer's present plan.
 * @throws RatelimitError `INVALID_OPTION` also for one cost in place of a list, and for a list in place of one;
 * `NOT_RESERVED`; `ALREADY_SETTLED`, also if some were settled alone; the errors of `limitAll`.
 *
 * @example
 * ```ts
 * import type { Ratelimit } from 'drizzle-ratelimit'
 * import type { Credits } from 'drizzle-ratelimit/credits'
 * import { reserveAll, settle, spend } from 'drizzle-ratelimit/quota'
 *
 * declare const monthly: Ratelimit
 * declare const credits: Credits
 * const sources = [
 *   { ratelimit: monthly, key: 'org:1' },
 *   { ratelimit: credits, key: 'org:1' },
 * ]
 * const spent = await spend(sources, { rate: 500, id: 'job:7', expires: '10m' })
 * // In any process:
 * if (spent.success) await settle(sources, 'job:7', { actual: 620 })
 *
 * const reserved = await reserveAll(sources, { id: 'job:8', expires: '10m' })
 * if (reserved.success) await settle(sources, 'job:8', { actual: [3120, 2] })
 * ```
 */
export async function settle(
  requests: readonly (SpendRequest | CreditSpendRequest)[],
  id: string,
  options: SettleOptions,
): Promise<SettledAll> {
  const { settleNames } = await byName()
  return await settleNames(requests, id, options)
}
