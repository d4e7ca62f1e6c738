import { reserveAll as names, type ReserveAllOptions } from '../estimates/options.ts'
import type { ReservedAll } from '../estimates/reserve-calls.ts'
import { checkOptions } from '../kernel/base/check-options.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import type { CreditReserveRequest, ReserveRequest } from './requests.ts'

const reserving = /* @__PURE__ */ onFirstUse(() => import('../estimates/reserve-calls.ts'))

/**
 * Charges estimates to several limits, all or none, as `limitAll` does. When the costs are known,
 * `commit(actuals)` or `release()` corrects them, also all or none.
 *
 * If the process crashes before that, the estimates stay charged. With a name, `id` and `expires`, another
 * process can settle them: see {@link settle}.
 *
 * @throws RatelimitError the errors of `limitAll`; `INVALID_RATE` for a negative rate.
 *
 * @example
 * ```ts
 * import type { Ratelimit } from 'drizzle-ratelimit'
 * import { reserveAll } from 'drizzle-ratelimit/quota'
 *
 * declare const perAddress: Ratelimit
 * declare const perAccount: Ratelimit
 * declare function signIn(): Promise<boolean>
 * const attempt = await reserveAll([
 *   { ratelimit: perAddress, key: '192.0.2.1' },
 *   { ratelimit: perAccount, key: 'ada@example.com' },
 * ])
 * if (attempt.success && (await signIn())) await attempt.release() // only failures count
 *
 * declare const tokens: Ratelimit
 * declare const spending: Ratelimit
 * declare function complete(): Promise<{ used: number; cents: number }>
 * const estimate = await reserveAll([
 *   { ratelimit: tokens, key: 'org:1', rate: 4000 },
 *   { ratelimit: spending, key: 'org:1', rate: 12 },
 * ])
 * if (estimate.success) {
 *   const { used, cents } = await complete()
 *   await estimate.commit([used, cents])
 * }
 * ```
 */
export function reserveAll(
  requests: readonly ReserveRequest[],
  options?: ReserveAllOptions,
): Promise<ReservedAll<ReserveRequest>>
/** Charges estimates to several limits, and to the credits of keys. */
export function reserveAll(
  requests: readonly (ReserveRequest | CreditReserveRequest)[],
  options?: ReserveAllOptions,
): Promise<ReservedAll<ReserveRequest | CreditReserveRequest>>
export async function reserveAll(
  requests: readonly (ReserveRequest | CreditReserveRequest)[],
  options: ReserveAllOptions = {},
): Promise<ReservedAll<ReserveRequest | CreditReserveRequest>> {
  checkOptions(options, names)
  const { reserveCalls } = await reserving()
  return await reserveCalls(requests, options)
}
