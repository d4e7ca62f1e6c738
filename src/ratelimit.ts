/// <reference lib="esnext.disposable" preserve="true" />

import type { CreditCalls, CreditReserved } from './credits/credits.ts'
import type { CreditGrant } from './credits/grants.ts'
import type { Reserved, ReservedPart } from './estimates/reservation.ts'
import { usageOf } from './kernel/answers/answer.ts'
import type { Allowed, Denied, Granted, GrantResult, LimitResult, Usage } from './kernel/answers/results.ts'
import { checkOptions, type OptionNames } from './kernel/base/check-options.ts'
import { onFirstUse } from './kernel/base/on-first-use.ts'
import type { Database } from './kernel/database/database.ts'
import type { Duration } from './kernel/duration.ts'
import type { Checker } from './kernel/engine/checker.ts'
import { expose, type Handle } from './kernel/engine/handles.ts'
import { answerTo } from './kernel/engine/layers.ts'
import { checkerOf } from './kernel/engine/setup.ts'
import { ownError } from './kernel/errors.ts'
import { balance } from './kernel/limits/balance.ts'
import { credits } from './kernel/limits/credits.ts'
import { fixedWindow } from './kernel/limits/fixed-window.ts'
import { gcra } from './kernel/limits/gcra.ts'
import { slidingWindow } from './kernel/limits/sliding-window.ts'
import { tokenBucket } from './kernel/limits/token-bucket.ts'
import { unlimited } from './kernel/limits/unlimited.ts'
import * as CALLS from './kernel/options/call-table.ts'
import type {
  BlockOptions,
  CallOptions,
  LimitOptions,
  RefundOptions,
  TxOptions,
} from './kernel/options/calls.ts'
import type { CreditGrantOptions, CreditLimitOptions, GrantOptions } from './kernel/options/grants.ts'
import type { ConfigOf, KeyFor, Kind, LimiterOf } from './kernel/options/kinds.ts'
import type { PlainCreditReserveOptions, PlainReserveOptions } from './kernel/options/reserve.ts'
import { type Offered, settingsOf } from './kernel/options/settings.ts'
import { callOf, checkOption, isCredits, type OptionsOfCall } from './kernel/options/validate.ts'
import type { Call } from './kernel/store/call.ts'

/** Rarely used code is loaded on first use, so that bundles and starts stay small. */
const MODULES = {
  reservation: /* @__PURE__ */ onFirstUse(() => import('./estimates/reservation.ts')),
  once: /* @__PURE__ */ onFirstUse(() => import('./kernel/lists/limit-once.ts')),
  lookAll: /* @__PURE__ */ onFirstUse(() => import('./kernel/engine/look-all.ts')),
  block: /* @__PURE__ */ onFirstUse(() => import('./estimates/wait-for-all.ts')),
  upkeep: /* @__PURE__ */ onFirstUse(() => import('./kernel/engine/upkeep.ts')),
  reset: /* @__PURE__ */ onFirstUse(() => import('./kernel/engine/reset.ts')),
  credits: /* @__PURE__ */ onFirstUse(() => import('./credits/credits.ts')),
  funded: /* @__PURE__ */ onFirstUse(() => import('./credits/funded.ts')),
}

/**
 * A rate limit or quota in your own Postgres.
 *
 * Create one for each limit and keep it, because calls that arrive together share a statement.
 *
 * @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_DURATION` from the constructor.
 *
 * @example
 * ```ts
 * import { drizzle } from 'drizzle-orm/node-postgres'
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { Pool } from 'pg'
 *
 * const pool = new Pool({ connectionString: process.env.DATABASE_URL! })
 * pool.on('error', console.error) // otherwise Node ends the process when an idle connection breaks
 * const db = drizzle({ client: pool })
 * const api = new Ratelimit({ db, limiter: Ratelimit.tokenBucket(5, '10s', 20), prefix: 'api' })
 *
 * const { success, remaining, retryAfter } = await api.limit('user:123')
 * ```
 */
export class Ratelimit<K extends Kind = 'rate', D = Database> {
  /** The limiter's namespace. */
  readonly prefix: string
  /** The limit of calls without a `limiter` of their own. */
  readonly limiter: LimiterOf<K>
  readonly #checker: Checker
  readonly #hash: ((key: unknown) => Promise<string>) | undefined

  /** What a limiter of this class offers. */
  protected static readonly offered: Offered = { durable: false, periods: false }

  constructor(config: ConfigOf<K, D>) {
    const settings = settingsOf(config, new.target.offered)
    this.prefix = config.prefix
    this.limiter = config.limiter
    this.#checker = checkerOf(settings)
    this.#hash = this.#checker.terms.hash
    const { limiter } = config
    const checker = this.#checker
    const funded: Handle['funded'] = isCredits(limiter)
      ? async (key, options) => (await MODULES.funded()).fundedCall(checker, limiter, key, options)
      : undefined
    expose(this, { checker, funded })
  }

  /** A bucket of tokens that refills at the end of each interval, or steadily. */
  static readonly tokenBucket: typeof tokenBucket = tokenBucket
  /** A count that fades linearly over the next window. */
  static readonly slidingWindow: typeof slidingWindow = slidingWindow
  /** A count for each window. The first call opens a window. */
  static readonly fixedWindow: typeof fixedWindow = fixedWindow
  /** Calls spread evenly over a period, after a burst. */
  static readonly gcra: typeof gcra = gcra
  /** Prepaid credits. Only a grant adds to them. */
  static readonly balance: typeof balance = balance
  /** Prepaid credits in grants of their own, which can end. */
  static readonly credits: typeof credits = credits
  /** No limit. */
  static readonly unlimited: typeof unlimited = unlimited

  /** Takes from the grants of a key's credits, or gives back to them. */
  limit(key: KeyFor<K, 'credits'>, options?: CreditLimitOptions): Promise<LimitResult>
  /** Takes what is left, from `atLeast` to `rate` units. `granted` in the answer says how many. */
  limit(
    key: KeyFor<K, 'rate'>,
    options: LimitOptions & { readonly atLeast: number },
  ): Promise<(Allowed & Granted) | Denied>
  /** Gives back to the window that began at `start`. Other windows get nothing. */
  limit(key: KeyFor<K, 'rate'>, options: RefundOptions): Promise<LimitResult>
  /**
   * Decides, and consumes if allowed. A denial writes nothing.
   *
   * With `tx` it joins your transaction: the row stays locked until the transaction ends, and a rollback undoes
   * the charge.
   *
   * @throws RatelimitError `INVALID_KEY`, `INVALID_RATE`, `INVALID_LIMIT`, `INVALID_OPTION`, `INVALID_DURATION`
   * (of `once`), `INVALID_CLOCK` before any SQL; `COUNT_OVERFLOW` for a forced charge that is too large to
   * count, `OTHER_PLAN` with `onOtherPlan: 'throw'`, `ENTRIES_FAILED` with a ledger; from the database
   * `MISSING_TABLE`, `OVERLOADED`, `TIMEOUT`, `CONTENTION`, `SERIALIZATION_FAILURE`, `DEADLOCK`,
   * `TRANSACTION_ABORTED`, `UNREACHABLE`, `OUTCOME_UNKNOWN`, `DATABASE`.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const api: Ratelimit
   * await api.limit('user:123')
   * await api.limit('user:123', { rate: 5 }) // an expensive operation
   * await api.limit('user:123', { rate: -5 }) // it failed: give the tokens back
   * const charged = await api.limit('user:123', { rate: 5 })
   * if (charged.success) await api.limit('user:123', { rate: -5, start: charged.start }) // to that window
   * const part = await api.limit('user:123', { rate: 400, atLeast: 100 }) // what is left
   * if (part.success) console.log(part.granted) // from 100 to 400
   * await api.limit('user:123', { once: { id: 'event:7', for: '35d' } }) // again: charged once
   * ```
   */
  limit(key: KeyFor<K, 'rate'>, options?: LimitOptions): Promise<LimitResult>
  async limit(key: string, options: OptionsOfCall = {}): Promise<LimitResult> {
    Ratelimit.#check(this, options, CALLS.limit, CALLS.creditLimit)
    if (isCredits(this.limiter)) return (await this.#account(key)).limit(options)
    // An `await` takes time even without a promise.
    const call = this.#hash ? await this.#call(key, options) : callOf(this.prefix, this.limiter, key, options)
    try {
      const { once, tx } = options
      const isAlone = once === undefined && !(this.#checker.terms.blocks && call.purpose === 'take')
      const answered = isAlone
        ? answerTo(this.#checker, call, tx)
        : (await MODULES.once()).answerOnce({ checker: this.#checker, call }, once, tx)
      return ('answer' in answered ? answered : await answered).answer
    } catch (error) {
      throw ownError(error)
    }
  }

  /** Takes an estimate from the grants of a key's credits. */
  reserve(key: KeyFor<K, 'credits'>, options?: PlainCreditReserveOptions): Promise<CreditReserved>
  /** Charges what is left, from `atLeast` to `rate` units. `granted` in the answer says how many. */
  reserve(
    key: KeyFor<K, 'rate'>,
    options: PlainReserveOptions & { readonly atLeast: number },
  ): Promise<ReservedPart>
  /**
   * Charges an estimate. When the cost is known, `commit(actual)` or `release()` corrects it. The `reserve` of
   * a `Quota` also takes a name, by which another process can do that.
   *
   * If the process crashes before that, the estimate stays charged.
   *
   * @throws RatelimitError the errors of {@link Ratelimit.limit}; `INVALID_RATE` for a negative estimate.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const tokens: Ratelimit
   * declare function complete(): Promise<{ used: number }>
   * const reserved = await tokens.reserve('org:1', { rate: 4000 })
   * if (reserved.success) {
   *   const { used } = await complete().catch(async (error) => {
   *     await reserved.release() // if a failure costs nothing
   *     throw error
   *   })
   *   await reserved.commit(used)
   * }
   * ```
   */
  reserve(key: KeyFor<K, 'rate'>, options?: PlainReserveOptions): Promise<Reserved>
  async reserve(key: string, options: PlainReserveOptions = {}): Promise<Reserved | CreditReserved> {
    Ratelimit.#check(this, options, CALLS.plainReserve, CALLS.plainCreditReserve)
    if (isCredits(this.limiter)) return (await this.#account(key)).reserve(options)
    const call = await this.#call(key, options)
    const { reserve } = await MODULES.reservation()
    try {
      return await reserve({ checker: this.#checker, call }, options)
    } catch (error) {
      throw ownError(error)
    }
  }

  /**
   * Looks at a key: what is used, what is left, and when the limit is full again. It takes no lock and writes
   * nothing. During an outage it always throws; `onError` does not apply.
   *
   * @throws RatelimitError before any SQL `INVALID_KEY`, `INVALID_LIMIT`, `INVALID_OPTION`, `INVALID_CLOCK`;
   * `OTHER_PLAN` with `onOtherPlan: 'throw'`; then the database errors of {@link Ratelimit.limit}.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const api: Ratelimit
   * const { limit, used, remaining, reset } = await api.getRemaining('user:123')
   * ```
   */
  async getRemaining(key: KeyFor<K, 'rate' | 'credits'>, options: CallOptions = {}): Promise<Usage> {
    Ratelimit.#check(this, options, CALLS.call, CALLS.tx)
    if (isCredits(this.limiter)) return (await this.getRemainingAll([key], options))[0] as Usage
    const look = await this.#call(key, { ...options, rate: 0 })
    try {
      if (this.#checker.terms.blocks) {
        const [usage] = await (await MODULES.lookAll()).lookAll(this.#checker, [look], options.tx)
        return usage as Usage
      }
      const { call, decision } = await this.#checker.decide(look, options.tx)
      return usageOf(call.limiter, decision)
    } catch (error) {
      throw ownError(error)
    }
  }

  /**
   * Looks at many keys in one statement, as {@link Ratelimit.getRemaining} does at one.
   *
   * @param keys At most 1,000. A key may occur more than once.
   * @returns The answer for each key, in the order of the keys.
   * @throws RatelimitError `INVALID_OPTION` for more keys; the errors of {@link Ratelimit.getRemaining}.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const credits: Ratelimit
   * const [first, second] = await credits.getRemainingAll(['org:1', 'org:2'])
   * ```
   */
  async getRemainingAll(
    keys: readonly KeyFor<K, 'rate' | 'credits'>[],
    options: CallOptions = {},
  ): Promise<Usage[]> {
    Ratelimit.#check(this, options, CALLS.call, CALLS.tx)
    const { checkKeys, lookAll } = await MODULES.lookAll()
    checkKeys(keys)
    const { limiter } = this
    if (isCredits(limiter)) return (await MODULES.credits()).lookAtAll(this.#checker, limiter, keys, options)
    // Unlike `map`, it does not skip the holes of a list.
    const looks = Array.from(keys, async (key) => this.#call(key, { ...options, rate: 0 }))
    return lookAll(this.#checker, await Promise.all(looks), options.tx)
  }

  /**
   * Waits until the call is allowed. If `timeout` is too short for that, it returns the last denial at once.
   *
   * It holds no connection while it waits. The timeout and the signal also end a check that is under way. If
   * that check is granted afterwards, the grant is given back, unless `onError` has let the call pass.
   *
   * @param timeout Milliseconds, or a string like `'30s'`. 0 tries once.
   * @throws The signal's reason when it aborts; RatelimitError `INVALID_DURATION`; `INVALID_OPTION` for an
   * invalid signal, and for a limiter on a transaction, which would hold its locks during the wait; the errors
   * of {@link Ratelimit.limit}.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const api: Ratelimit
   * const { success } = await api.blockUntilReady('user:123', '30s', { signal: AbortSignal.timeout(60_000) })
   * ```
   */
  async blockUntilReady(
    key: KeyFor<K, 'rate'>,
    timeout: Duration,
    options: BlockOptions = {},
  ): Promise<LimitResult> {
    Ratelimit.#check(this, options, CALLS.blockUntilReady)
    const { signal, ...limitOptions } = options
    const call = await this.#call(key, limitOptions)
    const { blockUntilReady } = await MODULES.block()
    try {
      return await blockUntilReady(this.#checker, call, timeout, signal)
    } catch (error) {
      throw signal?.aborted && error === signal.reason ? error : ownError(error)
    }
  }

  /**
   * Adds credits to a balance, in whole units. The sum of all grants is at most 2^53 - 1.
   *
   * Each call grants again, unless `once` has the id of the payment. During an outage it always throws;
   * `onError` does not apply.
   *
   * @throws RatelimitError `INVALID_OPTION` for a limiter that is not a balance; `INVALID_RATE` for an amount
   * that is not a whole number above 0; `COUNT_OVERFLOW` for a sum of grants above 2^53 - 1; the errors of
   * {@link Ratelimit.limit}.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const credits: Ratelimit
   * const { remaining } = await credits.grant('org:1', 1000, { once: { id: 'payment:7', for: '90d' } })
   * ```
   */
  grant(key: KeyFor<K, 'rate'>, amount: number, options?: GrantOptions): Promise<GrantResult>
  /**
   * Adds a grant to a key's credits, with an id, an end and a priority of its own. The same id again grants
   * nothing, and the answer has `repeated: true`.
   */
  grant(key: KeyFor<K, 'credits'>, amount: number, options: CreditGrantOptions): Promise<GrantResult>
  async grant(
    key: string,
    amount: number,
    options: GrantOptions | CreditGrantOptions = {},
  ): Promise<GrantResult> {
    Ratelimit.#check(this, options, CALLS.grant, CALLS.creditGrant)
    if (isCredits(this.limiter))
      return (await this.#account(key)).grant(amount, options as CreditGrantOptions)
    // With undefined, the rate would be the default of 1.
    const call = await this.#call(key, { ...options, rate: amount ?? 0 })
    const { once, tx } = options as GrantOptions
    try {
      return await (once === undefined
        ? (await MODULES.upkeep()).grant(this.#checker, call, tx)
        : (await MODULES.once()).grantOnce(this.#checker, call, once, tx))
    } catch (error) {
      throw ownError(error)
    }
  }

  /**
   * Lists the grants of a key's credits, in the order in which calls take from them. Grants that have ended are
   * in the list as long as their rows are kept. It takes no lock and writes nothing.
   *
   * @throws RatelimitError `INVALID_OPTION` for a limiter that is not made by `Ratelimit.credits`; the errors
   * of {@link Ratelimit.getRemaining}.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   * import { db } from './app.ts'
   *
   * const credits = new Ratelimit({ db, limiter: Ratelimit.credits(), prefix: 'credits', durable: true })
   * for (const { id, left, expires } of await credits.grantsOf('org:1')) console.log(id, left, expires)
   * ```
   */
  async grantsOf(key: KeyFor<K, 'credits'>, options: TxOptions = {}): Promise<CreditGrant[]> {
    Ratelimit.#check(this, options, CALLS.tx)
    return (await this.#account(key)).grantsOf(options)
  }

  /**
   * Ends a grant of a key's credits now, and takes back what is left of it. What was used stays used, and a
   * later refund gives nothing back to it.
   *
   * @returns What was left; 0 if there is no such grant, or if it has ended before.
   * @throws RatelimitError `INVALID_OPTION` for a limiter that is not made by `Ratelimit.credits`; the errors
   * of {@link Ratelimit.limit}.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   * import { db } from './app.ts'
   *
   * const credits = new Ratelimit({ db, limiter: Ratelimit.credits(), prefix: 'credits', durable: true })
   * await db.transaction(async (tx) => {
   *   const left = await credits.voidGrant('org:1', 'payment:7', { tx })
   *   console.log(left) // what the customer gets back
   * })
   * ```
   */
  async voidGrant(key: KeyFor<K, 'credits'>, id: string, options: TxOptions = {}): Promise<number> {
    Ratelimit.#check(this, options, CALLS.tx)
    return (await this.#account(key)).voidGrant(id, options)
  }

  /**
   * Makes the key's limit full again. A balance cannot be reset. It does not end a block of a limiter with
   * `blocks()`.
   *
   * @throws RatelimitError before any SQL `INVALID_KEY`, `INVALID_LIMIT`, `INVALID_CLOCK`, and
   * `INVALID_OPTION`, also for a balance; then the database errors of {@link Ratelimit.limit}.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const api: Ratelimit
   * await api.resetUsedTokens('user:123')
   * ```
   */
  async resetUsedTokens(key: KeyFor<K, 'rate'>, options: CallOptions = {}): Promise<void> {
    Ratelimit.#check(this, options, CALLS.call, CALLS.tx)
    const call = await this.#call(key, options)
    const { reset } = await MODULES.reset()
    await reset(this.#checker, call, options.tx)
  }

  /**
   * Deletes all expired rows of this prefix now. Calls also delete some by themselves. With `keepEnded` it
   * leaves the rows of fixed and calendar windows.
   *
   * @returns The number of deleted rows.
   * @throws RatelimitError `INVALID_CLOCK`; the database errors of {@link Ratelimit.limit}.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const api: Ratelimit
   * console.log(`${await api.cleanup()} expired rows were deleted`)
   * ```
   */
  async cleanup(): Promise<number> {
    Ratelimit.#check(this, {}, {})
    const { cleanUp } = await MODULES.upkeep()
    return cleanUp(this.#checker, isCredits(this.limiter))
  }

  /**
   * Ends the layers of `use`: prefetched units are given back, and counts of denials are written. Call it at
   * the end of a process. Later calls prefetch nothing. Without `use` it does nothing. It takes at most ten
   * seconds, because a database may never answer, and never rejects: units that cannot be given back stay
   * charged.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const api: Ratelimit
   * process.once('SIGTERM', async () => {
   *   await api.close()
   *   process.exit()
   * })
   * ```
   */
  async close(): Promise<void> {
    Ratelimit.#check(this, {}, {})
    const { close } = await MODULES.upkeep()
    await close(this.#checker)
  }

  /** Closes the limiter at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /**
   * Checks `this` and the options. Without it, a method without its limiter, as in `const { limit } = api`,
   * would end in a TypeError about a private member.
   */
  static #check(limit: unknown, options: unknown, names: OptionNames, ofCredits = names): void {
    checkOption(
      #checker in Object(limit),
      'A method was called without its Ratelimit: write (key) => ratelimit.limit(key).',
    )
    checkOptions(options, isCredits(Object(limit).limiter) ? ofCredits : names)
  }

  /** The credits of a key. */
  async #account(key: string): Promise<CreditCalls> {
    const { callsOn } = await MODULES.credits()
    return callsOn(this.#checker, this.limiter, this.#hash ? await this.#hash(key) : key)
  }

  #call(key: string, options: OptionsOfCall): Call | Promise<Call> {
    const callWith = (stored: string) => callOf(this.prefix, this.limiter, stored, options)
    return this.#hash ? this.#hash(key).then(callWith) : callWith(key)
  }
}
