/// <reference lib="esnext.disposable" preserve="true" />

import { checkerOf } from './checker-of.ts'
import { type PlainReserveOptions, plainReserve as RESERVE_NAMES } from './estimates/options.ts'
import type { Reserved, ReservedPart } from './estimates/reservation.ts'
import type { Allowed, Denied, Granted, LimitResult, Usage } from './kernel/answers/results.ts'
import { checkOptions, type OptionNames } from './kernel/base/check-options.ts'
import { onFirstUse } from './kernel/base/once.ts'
import type { Database } from './kernel/database/database.ts'
import type { Duration } from './kernel/duration.ts'
import type { Checker } from './kernel/engine/checker.ts'
import { expose } from './kernel/engine/handles.ts'
import { own, ownError } from './kernel/errors.ts'
import type { Limiter } from './kernel/limits/algorithm.ts'
import { fixedWindow } from './kernel/limits/fixed-window.ts'
import { gcra } from './kernel/limits/gcra.ts'
import { slidingWindow } from './kernel/limits/sliding-window.ts'
import { tokenBucket } from './kernel/limits/token-bucket.ts'
import { unlimited } from './kernel/limits/unlimited.ts'
import { answerOne, lookAtOne } from './kernel/lists/one-call.ts'
import * as CALLS from './kernel/options/call-table.ts'
import type { BlockOptions, CallOptions, LimitOptions, RefundOptions } from './kernel/options/calls.ts'
import type { RatelimitConfig } from './kernel/options/config.ts'
import { type Offered, settingsOf } from './kernel/options/settings.ts'
import { callOf, checkOption, type OptionsOfCall } from './kernel/options/validate.ts'
import type { Call } from './kernel/store/call.ts'

/** Rarely used code is loaded on first use, so that bundles and starts stay small. */
const MODULES = {
  reservation: /* @__PURE__ */ onFirstUse(() => import('./estimates/reservation.ts')),
  lookAll: /* @__PURE__ */ onFirstUse(() => import('./kernel/engine/look-all.ts')),
  wait: /* @__PURE__ */ onFirstUse(() => import('./estimates/wait-for-all.ts')),
  maintenance: /* @__PURE__ */ onFirstUse(() => import('./kernel/engine/maintenance.ts')),
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
export class Ratelimit<D = Database> {
  /** The limiter's namespace. */
  readonly prefix: string
  /** The limit of calls without a `limiter` of their own. */
  readonly limiter: Limiter
  readonly #checker: Checker

  /** What a limiter of this class offers. */
  protected static readonly offered: Offered = { durable: false, periods: false }

  constructor(config: RatelimitConfig<D>) {
    const settings = settingsOf(config, new.target.offered)
    this.prefix = config.prefix
    this.limiter = config.limiter
    this.#checker = checkerOf(settings)
    expose(this, { checker: this.#checker, funded: undefined })
  }

  /** A bucket of tokens that refills at the end of each interval, or steadily. */
  static readonly tokenBucket: typeof tokenBucket = tokenBucket
  /** A count that fades linearly over the next window. */
  static readonly slidingWindow: typeof slidingWindow = slidingWindow
  /** A count for each window. The first call opens a window. */
  static readonly fixedWindow: typeof fixedWindow = fixedWindow
  /** Calls spread evenly over a period, after a burst. */
  static readonly gcra: typeof gcra = gcra
  /** No limit. */
  static readonly unlimited: typeof unlimited = unlimited

  /** Takes what is left, from `atLeast` to `rate` units. `granted` in the answer says how many. */
  limit(
    key: string,
    options: LimitOptions & { readonly atLeast: number },
  ): Promise<(Allowed & Granted) | Denied>
  /** Gives back to the window that began at `start`. Other windows get nothing. */
  limit(key: string, options: RefundOptions): Promise<LimitResult>
  /**
   * Decides, and consumes if allowed. A denial writes nothing.
   *
   * With `tx` it joins your transaction: the row stays locked until the transaction ends, and a rollback undoes
   * the charge.
   *
   * @throws RatelimitError `INVALID_KEY`, `INVALID_RATE`, `INVALID_OPTION`, `INVALID_DURATION` (of `once`),
   * `INVALID_CLOCK` before any SQL; `COUNT_OVERFLOW` for a forced charge that is too large to count,
   * `OTHER_PLAN` with `onOtherPlan: 'throw'`, `ENTRIES_FAILED` with a ledger; from the database
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
  limit(key: string, options?: LimitOptions): Promise<LimitResult>
  async limit(key: string, options: OptionsOfCall = {}): Promise<LimitResult> {
    Ratelimit.#check(this, options, CALLS.limit)
    const checker = this.#checker
    const { hash } = checker.terms
    // An `await` takes time even without a promise.
    const call = callOf(this.prefix, this.limiter, hash ? await hash(key) : key, options)
    try {
      const answered = answerOne(checker, call, options)
      return ('answer' in answered ? answered : await answered).answer
    } catch (error) {
      throw ownError(error)
    }
  }

  /** Charges what is left, from `atLeast` to `rate` units. `granted` in the answer says how many. */
  reserve(key: string, options: PlainReserveOptions & { readonly atLeast: number }): Promise<ReservedPart>
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
  reserve(key: string, options?: PlainReserveOptions): Promise<Reserved>
  async reserve(key: string, options: PlainReserveOptions = {}): Promise<Reserved> {
    Ratelimit.#check(this, options, RESERVE_NAMES)
    const call = await this.#call(key, options)
    const { reserve } = await MODULES.reservation()
    return await own(reserve({ checker: this.#checker, call }, options))
  }

  /**
   * Looks at a key: what is used, what is left, and when the limit is full again. It takes no lock and writes
   * nothing. During an outage it always throws; `onError` does not apply.
   *
   * @throws RatelimitError before any SQL `INVALID_KEY`, `INVALID_OPTION`, `INVALID_CLOCK`; `OTHER_PLAN` with
   * `onOtherPlan: 'throw'`; then the database errors of {@link Ratelimit.limit}.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const api: Ratelimit
   * const { limit, used, remaining, reset } = await api.getRemaining('user:123')
   * ```
   */
  async getRemaining(key: string, options: CallOptions = {}): Promise<Usage> {
    Ratelimit.#check(this, options, CALLS.call)
    const look = await this.#call(key, { ...options, rate: 0 })
    return await own(lookAtOne(this.#checker, look, options.tx))
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
   * declare const api: Ratelimit
   * const [first, second] = await api.getRemainingAll(['org:1', 'org:2'])
   * ```
   */
  async getRemainingAll(keys: readonly string[], options: CallOptions = {}): Promise<Usage[]> {
    Ratelimit.#check(this, options, CALLS.call)
    const { checkKeys, lookAll } = await MODULES.lookAll()
    checkKeys(keys)
    // Unlike `map`, it does not skip the holes of a list.
    const looks = Array.from(keys, async (key) => this.#call(key, { ...options, rate: 0 }))
    return lookAll(this.#checker, await Promise.all(looks), options.tx)
  }

  /**
   * Waits until the call is allowed. If `timeout` is too short for that, it returns the last denial at once.
   *
   * It holds no connection while it waits. The timeout and the signal also end a check that is under way. If
   * that check is granted afterwards, the grant is given back, unless `onError` has let the call pass. With
   * `once` it stays charged, so a call with the same id finds it.
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
  async blockUntilReady(key: string, timeout: Duration, options: BlockOptions = {}): Promise<LimitResult> {
    Ratelimit.#check(this, options, CALLS.blockUntilReady)
    const call = await this.#call(key, options)
    const { waitForOne } = await MODULES.wait()
    return await own(waitForOne({ checker: this.#checker, call }, timeout, options), options.signal)
  }

  /**
   * Makes the key's limit full again. It does not end a block of a limiter with `blocks()`.
   *
   * @throws RatelimitError before any SQL `INVALID_KEY`, `INVALID_OPTION`, `INVALID_CLOCK`; then the database
   * errors of {@link Ratelimit.limit}.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const api: Ratelimit
   * await api.resetUsedTokens('user:123')
   * ```
   */
  async resetUsedTokens(key: string, options: CallOptions = {}): Promise<void> {
    Ratelimit.#check(this, options, CALLS.call)
    const call = await this.#call(key, options)
    const { reset } = await MODULES.maintenance()
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
    const { cleanUp } = await MODULES.maintenance()
    return cleanUp(this.#checker)
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
    const { close } = await MODULES.maintenance()
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
  static #check(limit: unknown, options: unknown, names: OptionNames): void {
    checkOption(
      #checker in Object(limit),
      'A method was called without its Ratelimit: write (key) => ratelimit.limit(key).',
    )
    checkOptions(options, names)
  }

  async #call(key: string, options: OptionsOfCall): Promise<Call> {
    return callOf(this.prefix, this.limiter, await this.#checker.stored(key), options)
  }
}
