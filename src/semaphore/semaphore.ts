import { checkOptions, type OptionNames } from '../kernel/base/check-options.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import { cleanUp } from '../kernel/engine/maintenance.ts'
import { own } from '../kernel/errors.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import { checkKey, checkOption } from '../kernel/options/validate.ts'
import { type OwnRows, ownRowsOf } from '../shared/own-rows.ts'
import { show } from '../shared/shown.ts'
import { acquire, wantedBy } from './acquire.ts'
import { type Holder, holdersOf } from './holders.ts'
import type { Lease, NoLease } from './lease.ts'
import { ACQUIRE, type AcquireOptions, CONFIG, type SemaphoreConfig } from './options.ts'
import { checkLimit, lengthOf, type Plan } from './plan.ts'

const shown = /* @__PURE__ */ onFirstUse(() => import('./shown.ts'))

/**
 * A limit on how much runs at once. A key has `limit` slots, and each holder leases one.
 *
 * Create one for each limit and keep it, because calls that arrive together share a statement.
 *
 * @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_LIMIT`, `INVALID_DURATION` from the
 * constructor.
 *
 * @example
 * ```ts
 * import { Semaphore } from 'drizzle-ratelimit/semaphore'
 * import { db } from './app.ts'
 *
 * const exports = new Semaphore({ db, prefix: 'exports', limit: 5, lease: '30s' })
 * const job = await exports.acquire('org:1', { timeout: '10s' })
 * ```
 */
export class Semaphore {
  /** The semaphore's namespace. */
  readonly prefix: string
  readonly #plan: Plan
  readonly #rows: OwnRows

  constructor(config: SemaphoreConfig) {
    checkOptions(config, CONFIG)
    const { limit, lease, ...common } = config
    this.#plan = { limit: checkLimit(limit), leaseMs: lengthOf(lease) }
    this.#rows = ownRowsOf('slot', common)
    const [{ checker }, plan] = [this.#rows, this.#plan]
    show(this, { checker, load: async () => (await shown()).shownOf(checker, plan) })
    this.prefix = config.prefix
  }

  /**
   * Leases one of the key's slots. If no slot is free, it waits for one until `timeout` is over. The calls of a
   * process wait in a line.
   *
   * The lease ends at `release`, or by itself. The database's clock decides. During an outage it always throws.
   *
   * With `tx` the lock of the slot's row is the lease: it ends with your transaction, even by a crash.
   *
   * @throws The signal's reason when it aborts; RatelimitError before any SQL `INVALID_KEY`, `INVALID_OPTION`,
   * `INVALID_LIMIT`, `INVALID_DURATION`, `INVALID_CLOCK`; then the database errors of `Ratelimit.limit`.
   *
   * @example
   * ```ts
   * import { Semaphore } from 'drizzle-ratelimit/semaphore'
   * import { db } from './app.ts'
   *
   * declare function writeReport(signal: AbortSignal, fence: number): Promise<void>
   * const exports = new Semaphore({ db, prefix: 'exports', limit: 5, lease: '30s' })
   *
   * const job = await exports.acquire('org:1', { timeout: '10s' })
   * if (job.success) {
   *   try {
   *     await writeReport(job.signal, job.fence)
   *   } finally {
   *     await job.release() // or let `await using job = ...` do it
   *   }
   * }
   * ```
   */
  async acquire(key: string, options: AcquireOptions = {}): Promise<Lease | NoLease> {
    const stored = await Semaphore.#stored(this, key, options, ACQUIRE)
    const wanted = wantedBy(this.prefix, this.#plan, stored, options)
    this.#rows.onUse()
    return await acquire(this.#rows.checker, wanted)
  }

  /**
   * Lists who holds a slot of the key now, in the order of the slots. It is one statement, takes no lock and
   * writes nothing. Of a slot that another transaction holds by its `tx`, only the number is known.
   *
   * It reads the locks of the server, so it is for people and alerts, and not for each request. A slot can be
   * free or held by another when the answer arrives: `acquire` decides.
   *
   * @throws RatelimitError `INVALID_KEY`, `INVALID_OPTION`, `INVALID_CLOCK`; the database errors of
   * `Ratelimit.getRemaining`.
   *
   * @example
   * ```ts
   * import type { Semaphore } from 'drizzle-ratelimit/semaphore'
   *
   * declare const exports: Semaphore
   * for (const { slot, since, expires } of await exports.holders('org:1')) console.log(slot, since, expires)
   * ```
   */
  async holders(key: string, options: TxOptions = {}): Promise<Holder[]> {
    const stored = await Semaphore.#stored(this, key, options, CALLS.tx)
    checkKey(stored, this.prefix)
    this.#rows.onUse()
    return await own(holdersOf(this.#rows.checker, stored, options.tx))
  }

  /**
   * Deletes all expired rows of this prefix now. Calls also delete some by themselves. Slots that are held
   * stay.
   *
   * @returns The number of deleted rows.
   * @throws RatelimitError `INVALID_CLOCK`; the database errors of `Ratelimit.limit`.
   *
   * @example
   * ```ts
   * import type { Semaphore } from 'drizzle-ratelimit/semaphore'
   *
   * declare const exports: Semaphore
   * console.log(`${await exports.cleanup()} expired rows were deleted`)
   * ```
   */
  async cleanup(): Promise<number> {
    Semaphore.#check(this, {}, {})
    return cleanUp(this.#rows.checker)
  }

  /**
   * Does nothing, because a semaphore keeps nothing in memory that has to be written. Slots stay held until
   * they are released or their lease ends.
   */
  async close(): Promise<void> {
    Semaphore.#check(this, {}, {})
  }

  /** Closes the semaphore at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /**
   * Checks `this` and the options. Without it, a method without its semaphore, as in
   * `const { acquire } = jobs`, would end in a TypeError about a private member.
   */
  static #check(semaphore: unknown, options: unknown, names: OptionNames): asserts semaphore is Semaphore {
    checkOption(
      #rows in Object(semaphore),
      'A method was called without its Semaphore: write semaphore.acquire(key), or (key) => semaphore.acquire(key).',
    )
    checkOptions(options, names)
  }

  /** The key as it is stored. */
  static #stored(
    semaphore: unknown,
    key: string,
    options: unknown,
    names: OptionNames,
  ): string | Promise<string> {
    Semaphore.#check(semaphore, options, names)
    return semaphore.#rows.checker.stored(key)
  }
}
