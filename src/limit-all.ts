import type { AnyCredits } from './any-credits.ts'
import type { LimitAllResult } from './kernel/answers/results.ts'
import { checkOptions } from './kernel/base/check-options.ts'
import { onFirstUse } from './kernel/base/once.ts'
import type { Limiter } from './kernel/limits/algorithm.ts'
import { limitAll as names } from './kernel/options/call-table.ts'
import type { AllOptions } from './kernel/options/calls.ts'
import type { Ratelimit } from './ratelimit.ts'

/** One of the calls of `limitAll`. */
export interface LimitRequest {
  /** The limiter whose limit is checked. */
  readonly ratelimit: Ratelimit
  /** The limited key, such as a user. */
  readonly key: string
  /** The cost of the call. 0 looks, a negative rate gives back. Default: `1`. */
  readonly rate?: number | undefined
  /** Another limit for this call. Default: the limiter's. */
  readonly limiter?: Limiter | undefined
  /**
   * Consumes even if too little is left, for a cost that is known only afterwards. If another request is
   * denied, this one is not charged either. Default: `false`.
   */
  readonly force?: boolean | undefined
  /**
   * The least that is worth granting: the call takes what is left, up to `rate`. It must be the only request
   * for its row. Default: the whole rate or nothing.
   */
  readonly atLeast?: number | undefined
}

/** A call without a plan of its own, as one of the calls of `limitAll`: on credits, or on any limiter. */
export interface CreditRequest {
  /** The credits, or the limiter. */
  readonly ratelimit: AnyCredits | Ratelimit
  /** The limited key. */
  readonly key: string
  /** The cost of the call. 0 looks, a negative rate gives back. Default: `1`. */
  readonly rate?: number | undefined
  /** Credits have no plans. */
  readonly limiter?: never
  /** Takes what the key does not have as a debt. Default: `false`. */
  readonly force?: boolean | undefined
  /** The least that is worth granting. Default: the whole rate or nothing. */
  readonly atLeast?: number | undefined
}

const several = /* @__PURE__ */ onFirstUse(() => import('./kernel/lists/limit-all.ts'))
const waiting = /* @__PURE__ */ onFirstUse(() => import('./estimates/wait-for-all.ts'))

/**
 * Checks several limits: all are consumed, or none.
 *
 * If the rows exist, it is one statement, with `tx` in your transaction. Every call locks rows in the same
 * order, so calls never deadlock with each other or with single checks. Requests for the same row are added
 * up: refunds count first, and the others in their order. A forced charge leaves less for the requests after
 * it.
 *
 * With `wait` it checks again until all are allowed. If that takes too long, it returns the last denial at
 * once. `wait` does not shorten the first check, which has the limiters' `timeout`. What a check charges after
 * the wait has ended is given back. With `once` it stays charged, so a wait that ends during a check rejects
 * with `OUTCOME_UNKNOWN`, and a call with the same id finds the charge.
 *
 * @throws RatelimitError `INVALID_OPTION` for no requests, for more than 50 rows, for limiters of different
 * databases, for one row under different limits, and for `wait` in a transaction; the errors of
 * {@link Ratelimit.limit}.
 *
 * @example
 * ```ts
 * import { limitAll, type Ratelimit } from 'drizzle-ratelimit'
 *
 * declare const perSecond: Ratelimit
 * declare const perMonth: Ratelimit
 * const requests = [
 *   { ratelimit: perSecond, key: 'ip:192.0.2.1' },
 *   { ratelimit: perMonth, key: 'org:1', rate: 5 },
 * ]
 * const { success, denied, retryAfter } = await limitAll(requests)
 * await limitAll(requests, { wait: '10s' }) // waits for both
 * ```
 */
export function limitAll(
  requests: readonly LimitRequest[],
  options?: AllOptions,
): Promise<LimitAllResult<LimitRequest>>
/** Checks several limits, and the credits of keys. */
export function limitAll(
  requests: readonly (LimitRequest | CreditRequest)[],
  options?: AllOptions,
): Promise<LimitAllResult<LimitRequest | CreditRequest>>
export async function limitAll(
  requests: readonly (LimitRequest | CreditRequest)[],
  options: AllOptions = {},
): Promise<LimitAllResult<LimitRequest | CreditRequest>> {
  checkOptions(options, names)
  if (options.wait !== undefined) return await (await waiting()).waitForAll(requests, options)
  return await (await several()).limitRequests(requests, options)
}
