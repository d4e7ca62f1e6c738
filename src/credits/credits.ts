/// <reference lib="esnext.disposable" preserve="true" />

import { checkerOf } from '../checker-of.ts'
import { spend as RESERVE_NAMES } from '../estimates/options.ts'
import type { ReservationName } from '../estimates/settle-options.ts'
import type { Allowed, Denied, Granted, LimitResult, Usage } from '../kernel/answers/results.ts'
import { checkOptions, type OptionNames } from '../kernel/base/check-options.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import type { Database } from '../kernel/database/database.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import { calledBy, expose, type Handle } from '../kernel/engine/handles.ts'
import { own, ownError } from '../kernel/errors.ts'
import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import { answerEach, lookAtOne } from '../kernel/lists/one-call.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import type { QuotaConfig } from '../kernel/options/config.ts'
import { type Offered, settingsOf } from '../kernel/options/settings.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { show } from '../shared/shown.ts'
import { balance } from './balance.ts'
import { grantOfAnyAge } from './grant.ts'
import type { DatedGrant, Grant, GrantResult } from './grants.ts'
import type {
  CreditBlockOptions,
  CreditLimitOptions,
  CreditReserveOptions,
  CreditsConfig,
  DatedGrantOptions,
  GrantOptions,
} from './options.ts'
import * as OPTIONS from './options.ts'
import type { CreditReserved, CreditReservedPart } from './reserved.ts'
import type { Account } from './seen.ts'

/** Rarely used code is loaded on first use, so that bundles and starts stay small. */
const MODULES = {
  dated: /* @__PURE__ */ onFirstUse(() => import('./dated.ts')),
  balance: /* @__PURE__ */ onFirstUse(() => import('./grant-balance.ts')),
  reservation: /* @__PURE__ */ onFirstUse(() => import('../estimates/reservation.ts')),
  byName: /* @__PURE__ */ onFirstUse(() => import('../estimates/by-name.ts')),
  lookAll: /* @__PURE__ */ onFirstUse(() => import('../kernel/engine/look-all.ts')),
  shown: /* @__PURE__ */ onFirstUse(() => import('./shown.ts')),
  wait: /* @__PURE__ */ onFirstUse(() => import('../estimates/wait-for-all.ts')),
  maintenance: /* @__PURE__ */ onFirstUse(() => import('../kernel/engine/maintenance.ts')),
}

const OFFERED: Offered = { durable: true, periods: true }

/** For how long a dated grant is kept after its end. */
const KEEP = '90d'

/**
 * Prepaid credits, in whole units. `grant` adds them, calls take them, and nothing refills. A key without a
 * grant has none. They are kept in the logged table unless `durable: false` says otherwise.
 *
 * Without `dated`, a key has one balance, in a row that never expires. With `dated: true`, each grant is a row
 * with an id, an end and a priority. Calls take from the grant with the lowest priority number first, then from
 * the one that ends first, then from the oldest.
 *
 * In answers, `limit` is the sum of the grants that have not ended, and `remaining` their unused part, less
 * what is owed. `reset` is `Infinity` once something is used, and so is `retryAfter` of a denial.
 *
 * @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_DURATION` from the constructor.
 *
 * @example
 * ```ts
 * import { Credits } from 'drizzle-ratelimit/credits'
 * import { db } from './app.ts'
 *
 * const credits = new Credits({ db, prefix: 'credits' })
 * await credits.grant('org:1', 1000, { once: { id: 'payment:7', for: '90d' } })
 * await credits.limit('org:1', { rate: 40 })
 *
 * const dated = new Credits({ db, prefix: 'dated-credits', dated: true })
 * await dated.grant('org:1', 500, { id: 'promo:7', expires: '30d', priority: 10 })
 * await dated.limit('org:1', { rate: 40 })
 * ```
 */
export class Credits<Dated extends boolean = false, D = Database> {
  /** The namespace of the credits. */
  readonly prefix: string
  /** Whether they are in grants that can end. */
  readonly dated: Dated
  readonly #handle: Handle
  /** The limit of the row of a grant. Undefined if each key has one balance. */
  readonly #grant: StoredLimiter | undefined

  constructor(config: CreditsConfig<Dated, D>) {
    OPTIONS.checkNames(config)
    const { dated = false, keep = KEEP, ...common } = config
    const grant = dated ? grantOfAnyAge(parseDuration(keep, 'keep')) : undefined
    // What is not in the type is undefined, for these names were checked.
    const all = { ...common, limiter: grant ?? balance() } as QuotaConfig
    const checker = checkerOf(settingsOf(all, OFFERED))
    this.prefix = config.prefix
    // It is false where none is given, and so is the type.
    this.dated = dated as Dated
    this.#grant = grant
    const funded: Handle['funded'] =
      grant &&
      (async (stored, options) =>
        (await MODULES.dated()).fundedCall({ checker, limiter: grant }, stored, options))
    this.#handle = { checker, funded }
    expose(this, this.#handle)
    show(this, {
      checker,
      load: async () => {
        const { shownDated, shownUndated } = await MODULES.shown()
        return grant ? shownDated(checker, grant) : shownUndated(checker)
      },
    })
  }

  /** Takes what is left, from `atLeast` to `rate` units. `granted` in the answer says how many. */
  limit(
    key: string,
    options: CreditLimitOptions & { readonly atLeast: number },
  ): Promise<(Allowed & Granted) | Denied>
  /**
   * Takes units, or gives them back with a negative rate: to the grants that were used last. A denial writes
   * nothing.
   *
   * With `tx` it joins your transaction: the rows stay locked until the transaction ends, and a rollback undoes
   * the charge.
   *
   * @throws RatelimitError the errors of `Ratelimit.limit`.
   *
   * @example
   * ```ts
   * import type { Credits } from 'drizzle-ratelimit/credits'
   *
   * declare const credits: Credits
   * await credits.limit('org:1', { rate: 40 })
   * await credits.limit('org:1', { rate: -40 }) // it failed: give the units back
   * const part = await credits.limit('org:1', { rate: 400, atLeast: 100 }) // what is left
   * if (part.success) console.log(part.granted) // from 100 to 400
   * ```
   */
  limit(key: string, options?: CreditLimitOptions): Promise<LimitResult>
  async limit(key: string, options: CreditLimitOptions = {}): Promise<LimitResult> {
    Credits.#check(this, options, OPTIONS.limit)
    // An `await` takes time even without a promise.
    const called = calledBy(this.#handle, key, options)
    const each = 'call' in called ? called : await called
    try {
      const answering = answerEach(each, options)
      const answered = 'answer' in answering ? answering : await answering
      if (!this.#grant || each.call.rate >= 0) return answered.answer
      const account = { checker: this.#handle.checker, limiter: this.#grant, key: each.call.key }
      return await (await MODULES.dated()).givenBack(account, options, answered)
    } catch (error) {
      throw ownError(error)
    }
  }

  /** Charges what is left, from `atLeast` to `rate` units. `granted` in the answer says how many. */
  reserve(
    key: string,
    options: CreditReserveOptions & { readonly atLeast: number },
  ): Promise<CreditReservedPart>
  /**
   * Charges an estimate. When the cost is known, `commit(actual)` or `release()` corrects it. With a name,
   * `id` and `expires`, another process can do that: see {@link Credits.settle}.
   *
   * If the process crashes before that, the estimate stays charged.
   *
   * @throws RatelimitError the errors of {@link Credits.limit}; `INVALID_RATE` for a negative estimate.
   *
   * @example
   * ```ts
   * import type { Credits } from 'drizzle-ratelimit/credits'
   *
   * declare const credits: Credits
   * const { success } = await credits.reserve('org:1', { rate: 4000, id: 'job:7', expires: '10m' })
   * ```
   */
  reserve(key: string, options?: CreditReserveOptions): Promise<CreditReserved>
  async reserve(key: string, options: CreditReserveOptions = {}): Promise<CreditReserved> {
    Credits.#check(this, options, RESERVE_NAMES)
    const called = await calledBy(this.#handle, key, options)
    return await own((await MODULES.reservation()).reserve(called, options))
  }

  /**
   * Settles a reservation by its name: from any process, and once. Again with the same cost it charges nothing,
   * and the answer has `repeated: true`. A rollback of `tx` makes the reservation open again.
   *
   * @throws RatelimitError `NOT_RESERVED` if there is no such reservation; `ALREADY_SETTLED` if it was settled
   * with another cost; the errors of {@link CreditReservation.commit}.
   *
   * @example
   * ```ts
   * import type { Credits } from 'drizzle-ratelimit/credits'
   *
   * declare const credits: Credits
   * const reserved = await credits.reserve('org:1', { rate: 4000, id: 'job:7', expires: '10m' })
   * if (reserved.success) {
   *   // In any process:
   *   await credits.settle({ key: 'org:1', id: 'job:7' }, 3120)
   * }
   * ```
   */
  async settle(name: ReservationName, actual: number, options: TxOptions = {}): Promise<Allowed> {
    Credits.#check(this, options, CALLS.tx)
    const { settleName } = await MODULES.byName()
    return await settleName(this, name, actual, options)
  }

  /**
   * Looks at a key: what was granted, used, and is left. It takes no lock and writes nothing. During an outage
   * it always throws; `onError` does not apply.
   *
   * @throws RatelimitError before any SQL `INVALID_KEY`, `INVALID_OPTION`, `INVALID_CLOCK`; then the database
   * errors of {@link Credits.limit}.
   *
   * @example
   * ```ts
   * import type { Credits } from 'drizzle-ratelimit/credits'
   *
   * declare const credits: Credits
   * const { limit, used, remaining } = await credits.getRemaining('org:1')
   * ```
   */
  async getRemaining(key: string, options: TxOptions = {}): Promise<Usage> {
    Credits.#check(this, options, CALLS.tx)
    const { tx } = options
    if (this.#grant) return (await this.getRemainingAll([key], options))[0] as Usage
    const { call } = await calledBy(this.#handle, key, { rate: 0 })
    return await own(lookAtOne(this.#handle.checker, call, tx))
  }

  /**
   * Looks at many keys in one statement, as {@link Credits.getRemaining} does at one.
   *
   * @param keys At most 1,000. A key may occur more than once.
   * @returns The answer for each key, in the order of the keys.
   * @throws RatelimitError `INVALID_OPTION` for more keys; the errors of {@link Credits.getRemaining}.
   *
   * @example
   * ```ts
   * import type { Credits } from 'drizzle-ratelimit/credits'
   *
   * declare const credits: Credits
   * const [first, second] = await credits.getRemainingAll(['org:1', 'org:2'])
   * ```
   */
  async getRemainingAll(keys: readonly string[], options: TxOptions = {}): Promise<Usage[]> {
    Credits.#check(this, options, CALLS.tx)
    const { tx } = options
    const { checkKeys, lookAll } = await MODULES.lookAll()
    checkKeys(keys)
    // Unlike `map`, it does not skip the holes of a list.
    const looking = Array.from(keys, async (key) => (await calledBy(this.#handle, key, { rate: 0 })).call)
    const looks = await Promise.all(looking)
    if (!this.#grant) return await own(lookAll(this.#handle.checker, looks, tx))
    const stored = looks.map(({ key }) => key)
    return await own((await MODULES.dated()).readUsage(this.#handle.checker, stored, tx))
  }

  /**
   * Adds credits to a key, in whole units. Each call on undated credits grants again, unless `once` has the id
   * of the payment. A dated grant has an `id`: the same id again grants nothing. Its answer has
   * `repeated: true`.
   *
   * During an outage it always throws; `onError` does not apply.
   *
   * @param amount At most 2^53 - 1 together with the other grants of undated credits; of a dated grant at most
   * 2^52.
   * @throws RatelimitError `INVALID_RATE` for an amount that is not a whole number above 0; `COUNT_OVERFLOW`
   * for a sum of undated grants above 2^53 - 1; `INVALID_DURATION`; the errors of {@link Credits.limit}.
   *
   * @example
   * ```ts
   * import type { Credits } from 'drizzle-ratelimit/credits'
   *
   * declare const credits: Credits
   * const { remaining } = await credits.grant('org:1', 1000, { once: { id: 'payment:7', for: '90d' } })
   *
   * declare const dated: Credits<true>
   * await dated.grant('org:1', 500, { id: 'promo:7', expires: '30d' })
   * ```
   */
  grant(key: string, amount: number, ...options: GrantArguments<Dated>): Promise<GrantResult>
  async grant(
    key: string,
    amount: number,
    options: GrantOptions | DatedGrantOptions = {},
  ): Promise<GrantResult> {
    Credits.#check(this, options, OPTIONS.grant, OPTIONS.datedGrant)
    const { tx } = options
    if (this.#grant) {
      const account = await this.#account(this.#grant, key)
      const { grant } = await MODULES.dated()
      return await own(grant(account, amount, options as DatedGrantOptions))
    }
    const { once } = options as GrantOptions
    // With undefined, the rate would be the default of 1.
    const called = await calledBy(this.#handle, key, { rate: amount ?? 0 })
    const balance = await MODULES.balance()
    return await own(
      once === undefined
        ? balance.grant(called.checker, called.call, tx)
        : balance.grantOnce(called, once, tx),
    )
  }

  /**
   * Lists what was granted to a key. It takes no lock and writes nothing.
   *
   * Dated credits list each grant, in the order in which calls take from them. Grants that have ended are in
   * the list as long as their rows are kept. Undated credits list one grant, the balance, or none if nothing
   * was granted.
   *
   * @throws RatelimitError the errors of {@link Credits.getRemaining}.
   *
   * @example
   * ```ts
   * import type { Credits } from 'drizzle-ratelimit/credits'
   *
   * declare const credits: Credits<true>
   * for (const { id, left, expires } of await credits.grants('org:1')) console.log(id, left, expires)
   * ```
   */
  grants(key: string, options?: TxOptions): Promise<GrantOf<Dated>[]>
  async grants(key: string, options: TxOptions = {}): Promise<Grant[]> {
    Credits.#check(this, options, CALLS.tx)
    if (this.#grant) {
      const account = await this.#account(this.#grant, key)
      const { grantsOf } = await MODULES.dated()
      return await own(grantsOf(account, options))
    }
    const { limit: amount, used, remaining: left } = await this.getRemaining(key, options)
    return amount === 0 ? [] : [{ amount, used, left }]
  }

  /**
   * Ends a grant of dated credits now, and takes back what is left of it. What was used stays used, and a later
   * refund gives nothing back to it.
   *
   * @returns What was left; 0 if there is no such grant, or if it has ended before.
   * @throws RatelimitError `INVALID_OPTION` for undated credits; the errors of {@link Credits.limit}.
   *
   * @example
   * ```ts
   * import { Credits } from 'drizzle-ratelimit/credits'
   * import { db } from './app.ts'
   *
   * const credits = new Credits({ db, prefix: 'credits', dated: true })
   * await db.transaction(async (tx) => {
   *   const left = await credits.voidGrant('org:1', 'payment:7', { tx })
   *   console.log(left) // what the customer gets back
   * })
   * ```
   */
  async voidGrant(this: Credits<true, D>, key: string, id: string, options: TxOptions = {}): Promise<number> {
    Credits.#check(this, options, CALLS.tx)
    if (!this.#grant) return OPTIONS.needsDated(undefined, 'voidGrant')
    const account = await this.#account(this.#grant, key)
    const { voidGrant } = await MODULES.dated()
    return await own(voidGrant(account, id, options))
  }

  /**
   * Takes units, and says so when the wait is over. Nothing refills, so only a grant could end a denial, and
   * nobody can say when it comes: `retryAfter` is `Infinity`, and the denial is returned at once, as for every
   * call that would never be allowed. So it waits only for a key that is blocked.
   *
   * The timeout and the signal also end a check that is under way. If that check is granted afterwards, the
   * grant is given back. With `once` it stays charged, so a call with the same id finds it.
   *
   * @param timeout Milliseconds, or a string like `'30s'`. 0 tries once.
   * @throws The signal's reason when it aborts; RatelimitError `INVALID_DURATION`; `INVALID_OPTION` for an
   * invalid signal, and for credits on a transaction; the errors of {@link Credits.limit}.
   *
   * @example
   * ```ts
   * import type { Credits } from 'drizzle-ratelimit/credits'
   *
   * declare const credits: Credits
   * const { success } = await credits.blockUntilReady('org:1', '30s', { rate: 40 })
   * ```
   */
  async blockUntilReady(
    key: string,
    timeout: Duration,
    options: CreditBlockOptions = {},
  ): Promise<LimitResult> {
    Credits.#check(this, options, OPTIONS.blockUntilReady)
    const called = await calledBy(this.#handle, key, options)
    const { waitForOne } = await MODULES.wait()
    return await own(waitForOne(called, timeout, options), options.signal)
  }

  /**
   * Deletes all expired rows of this prefix now: ended grants, settled reservations, and the ids of `once`.
   * Calls also delete some by themselves. The row of undated credits never expires.
   *
   * @returns The number of deleted rows.
   * @throws RatelimitError `INVALID_CLOCK`; the database errors of {@link Credits.limit}.
   *
   * @example
   * ```ts
   * import type { Credits } from 'drizzle-ratelimit/credits'
   *
   * declare const credits: Credits
   * console.log(`${await credits.cleanup()} expired rows were deleted`)
   * ```
   */
  async cleanup(): Promise<number> {
    Credits.#check(this, {}, {})
    const { cleanUp } = await MODULES.maintenance()
    return cleanUp(this.#handle.checker, this.#grant !== undefined)
  }

  /** Ends the layers of `use`, as `close` of a `Ratelimit` does. */
  async close(): Promise<void> {
    Credits.#check(this, {}, {})
    const { close } = await MODULES.maintenance()
    await close(this.#handle.checker)
  }

  /** Closes the credits at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #account(grant: StoredLimiter, key: string): Promise<Account> {
    const { accountOf } = await MODULES.dated()
    return accountOf(this.#handle.checker, grant, await this.#handle.checker.stored(key))
  }

  /**
   * Checks `this` and the options. Without it, a method without its credits, as in `const { limit } = credits`,
   * would end in a TypeError about a private member.
   */
  static #check(credits: unknown, options: unknown, names: OptionNames, ofDated = names): void {
    const isOwn = (given: unknown): given is Credits<boolean> => #handle in Object(given)
    checkOption(isOwn(credits), 'A method was called without its Credits: write (key) => credits.limit(key).')
    checkOptions(options, credits.#grant ? ofDated : names)
  }
}

/** The options of `grant`. Dated grants need an id. */
export type GrantArguments<Dated extends boolean> = Dated extends true
  ? [options: DatedGrantOptions]
  : [options?: GrantOptions]

/** What `grants` lists. */
export type GrantOf<Dated extends boolean> = Dated extends true ? DatedGrant : Grant
