import { rateLimitDurable, rateLimitEphemeral } from '../schema/index.ts'
import type { Limiter } from './algorithms/algorithm.ts'
import { calendarWindowLimiter } from './algorithms/calendar-window.ts'
import { fixedWindowLimiter } from './algorithms/fixed-window.ts'
import { sharesRows } from './algorithms/limiter.ts'
import { slidingWindowLimiter } from './algorithms/sliding-window.ts'
import { type TokenBucketOptions, tokenBucketLimiter } from './algorithms/token-bucket.ts'
import { isUnlimited, UNLIMITED } from './algorithms/unlimited.ts'
import type { CalendarOptions, CalendarPeriod } from './calendar.ts'
import {
  type LimitAllResult,
  type LimitResult,
  together,
  type Usage,
  unlimitedAnswer,
  usageOf,
} from './check/answer.ts'
import { Checker } from './check/checker.ts'
import { chargeAll } from './check/limit-all.ts'
import { type Reserved, reservationOf } from './check/reservation.ts'
import type { BlockOptions, CallOptions, LimitOptions, RatelimitConfig } from './config.ts'
import { autoMigrateForbidden, ensureTables } from './database/auto-migrate.ts'
import { type Database, isTransaction } from './database/database.ts'
import { Prepared } from './database/prepared.ts'
import { inTransaction, retrying } from './database/retry.ts'
import { runOnce } from './database/run.ts'
import { valuesOf } from './database/statement.ts'
import { type Duration, parseDuration } from './duration.ts'
import { RatelimitError } from './errors.ts'
import { purposeOf, type Request, type Target } from './runtime/call.ts'
import { wait } from './runtime/wait.ts'
import { remove } from './statements/statements.ts'
import { checkConfig, checkKey, checkLimiter, checkOption, checkRate, readClock } from './validate.ts'

/** How many statements may be under way by default. */
const CONNECTIONS = 4

/**
 * A rate limit or quota in your own Postgres.
 *
 * Make one per limit and keep it: calls that arrive together share a statement.
 *
 * @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION` from the constructor.
 *
 * @example
 * ```ts
 * import { drizzle } from 'drizzle-orm/node-postgres'
 * import { Ratelimit } from 'drizzle-ratelimit'
 *
 * const db = drizzle(process.env.DATABASE_URL!)
 * const api = new Ratelimit({ db, limiter: Ratelimit.tokenBucket(5, '10s', 20), prefix: 'api' })
 *
 * const { success, remaining, retryAfter } = await api.limit('user:123')
 * ```
 */
export class Ratelimit {
  /** The limiter's namespace. */
  readonly prefix: string
  readonly #limiter: Limiter
  readonly #checker: Checker

  constructor(config: RatelimitConfig) {
    checkConfig(config)
    const { db, limiter, prefix, durable = false, synchronousCommit = false } = config
    const { inMemoryBlock = false, maxBlockedKeys = 10_000, connections = CONNECTIONS } = config
    const { cleanupProbability = 0.1, clock, tables = SHIPPED, autoMigrate = false } = config
    const { preparedStatements, thresholds = [], dryRun = false } = config
    this.prefix = prefix
    this.#limiter = limiter
    const migrates = autoMigrate && !autoMigrateForbidden()
    this.#checker = new Checker({
      home: {
        db,
        table: durable ? tables.durable : tables.ephemeral,
        prepared: new Prepared(preparedStatements),
      },
      namespace: { prefix, clock: clock ? () => readClock(clock) : () => null },
      limiter,
      reporting: { thresholds: [...new Set(thresholds)], dryRun },
      commit: durable ? (synchronousCommit ? 'flushed' : 'async') : 'as the session',
      connections,
      cleanupProbability,
      maxBlockedKeys: inMemoryBlock ? maxBlockedKeys : undefined,
      ensureTables: () => (migrates ? ensureTables(db, tables) : undefined),
    })
  }

  /**
   * A bucket of `maxTokens` that gets `refillRate` tokens every `interval`.
   *
   * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`, `INVALID_OPTION`
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * Ratelimit.tokenBucket(5, '10s', 20) // 5 more every ten seconds, bursts of 20
   * Ratelimit.tokenBucket(10, '1s', 100, { refill: 'continuous' }) // one every 100 ms
   * ```
   */
  static tokenBucket(
    refillRate: number,
    interval: Duration,
    maxTokens: number,
    options?: TokenBucketOptions,
  ): Limiter {
    return tokenBucketLimiter(refillRate, interval, maxTokens, options)
  }

  /**
   * `tokens` in any `window`, approximately: the previous window's count fades linearly while the current one
   * runs.
   *
   * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`
   */
  static slidingWindow(tokens: number, window: Duration): Limiter {
    return slidingWindowLimiter(tokens, window)
  }

  /**
   * `tokens` in each `window`. It opens with the first call and is over at its end.
   *
   * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`
   */
  static fixedWindow(tokens: number, window: Duration): Limiter {
    return fixedWindowLimiter(tokens, window)
  }

  /**
   * `tokens` in each period of the calendar in a time zone, or in each one counted from an anchor: a
   * subscription's start.
   *
   * A month from the 31st begins on the last day of a shorter month, and on the 31st again after it. A local
   * time that does not exist moves forward; of a time that exists twice the first is used. Weeks begin on
   * Monday.
   *
   * @throws RatelimitError `INVALID_LIMIT`; `INVALID_OPTION` for an unknown period or zone, and an anchor that
   * is no date or more than a hundred years away.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * Ratelimit.calendarWindow(10_000, 'month') // from the 1st, UTC
   * Ratelimit.calendarWindow(10_000, 'month', { timeZone: 'Europe/Berlin', anchor: new
   * Date('2026-01-31T09:15:00Z') })
   * ```
   */
  static calendarWindow(tokens: number, period: CalendarPeriod, options?: CalendarOptions): Limiter {
    return calendarWindowLimiter(tokens, period, options)
  }

  /** No limit: always allowed, nothing is read or written. The key's stored row stays for the next plan. */
  static unlimited(): Limiter {
    return UNLIMITED
  }

  /**
   * Decides and, when allowed, consumes. A denial writes nothing.
   *
   * With `tx` it joins your transaction: the row stays locked until that ends, and a rollback undoes the
   * charge.
   *
   * @throws RatelimitError `INVALID_KEY`, `INVALID_RATE`, `INVALID_OPTION`, `INVALID_CLOCK` before any SQL;
   * from the database `MISSING_TABLE`, `OVERLOADED`, `CONTENTION`, `SERIALIZATION_FAILURE`, `DEADLOCK`,
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
   * ```
   */
  async limit(key: string, options: LimitOptions = {}): Promise<LimitResult> {
    return this.#checker.check(this.#request(key, options), options.tx)
  }

  /**
   * Charges an estimate, to be corrected when the cost is known: `commit(actual)` or `release()`.
   *
   * A crash between the two leaves the estimate charged.
   *
   * @throws RatelimitError what {@link Ratelimit.limit} throws; `INVALID_RATE` for a negative estimate.
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
   *     await reserved.release()
   *     throw error
   *   })
   *   await reserved.commit(used)
   * }
   * ```
   */
  async reserve(key: string, options: Omit<LimitOptions, 'force'> = {}): Promise<Reserved> {
    const request = this.#request(key, options)
    const { rate: estimate, limiter: charged } = request
    if (estimate < 0) throw new RatelimitError('INVALID_RATE', 'A reservation is for a rate from 0 on.')
    const { answer, paidWindowStart } = await this.#checker.charge(request, options.tx)
    if (!answer.success) return answer
    return reservationOf(answer, estimate, (difference, { tx, limiter = charged }) => {
      // Rows of another algorithm have not paid, so they give nothing back. A dry run never charges a call that
      // it would have denied.
      const isElsewhere = difference < 0 && !sharesRows(limiter, charged)
      const rate = answer.wouldDeny || isElsewhere ? 0 : difference
      const settling = { ...this.#request(key, { rate, limiter, force: true }), paidWindowStart }
      return this.#checker.check(settling, tx)
    })
  }

  /**
   * Several limits: all are consumed, or none is.
   *
   * Without `tx` it opens a transaction of its own, which needs a driver with interactive transactions. With
   * `tx` it joins yours. The rows are locked in one order, so it never deadlocks with itself or with single
   * checks. Requests for the same row are added up.
   *
   * @throws RatelimitError `INVALID_OPTION` for no requests, for limiters of different databases, and for one
   * row under different limits; what {@link Ratelimit.limit} throws.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * declare const perSecond: Ratelimit
   * declare const perMonth: Ratelimit
   * const { success, denied, retryAfter } = await Ratelimit.limitAll([
   *   { ratelimit: perSecond, key: 'ip:192.0.2.1' },
   *   { ratelimit: perMonth, key: 'org:1', rate: 5 },
   * ])
   * ```
   */
  static async limitAll(
    requests: readonly LimitRequest[],
    options: Pick<CallOptions, 'tx'> = {},
  ): Promise<LimitAllResult<LimitRequest>> {
    const charges = requests.map(({ ratelimit, key, rate, limiter }) => {
      const { namespace, home, reporting } = ratelimit.#checker
      return { ...ratelimit.#request(key, { rate, limiter }), ...reporting, namespace, table: home.table }
    })
    const [first, ...others] = new Set(requests.map(({ ratelimit }) => ratelimit.#checker))
    checkOption(first !== undefined, 'limitAll needs at least one request.')
    checkOption(
      others.every((other) => other.home.db === first.home.db),
      'limitAll needs limiters of one database.',
    )
    const joined = first.joined(options.tx)
    if (charges.every(({ limiter }) => isUnlimited(limiter))) {
      return together(
        requests,
        charges.map(() => unlimitedAnswer(first.clockMs())),
      )
    }
    try {
      if (joined) return together(requests, await chargeAll(joined, charges, first.clockMs()))

      for (const checker of [first, ...others]) await checker.ensureTables()
      const clocks = [first, ...others].map((checker) => checker.namespace.clock())
      const results = await inTransaction(first.home.db, (db) =>
        chargeAll({ ...first.home, db }, charges, first.clockMs()),
      )
      for (const [i, checker] of [first, ...others].entries()) checker.sweepSometimes(clocks[i] ?? null)
      return together(requests, results)
    } finally {
      for (const [i, { ratelimit }] of requests.entries()) {
        const charge = charges[i] as Request
        if (ratelimit.#checker.maySoften(charge)) ratelimit.#checker.forgetDenials(charge.key)
      }
    }
  }

  /**
   * Looks: takes no lock, writes nothing.
   *
   * @throws RatelimitError `INVALID_KEY`, `INVALID_CLOCK` before any SQL; and what {@link Ratelimit.limit}
   * throws from the database.
   */
  async getRemaining(key: string, options: CallOptions = {}): Promise<Usage> {
    const request = this.#request(key, { ...options, rate: 0 })
    const { limiter } = request
    if (isUnlimited(limiter)) {
      const { limit, remaining, reset } = unlimitedAnswer(this.#checker.clockMs())
      return { limit, remaining, reset, used: 0 }
    }
    return this.#checker.decide(request, options.tx, (_, decision) => usageOf(limiter, decision))
  }

  /**
   * Waits until the call is allowed. If `timeout` is too short for that, it returns the last denial at once.
   *
   * It holds no connection while it waits.
   *
   * @param timeout Milliseconds, or a string like `'30s'`; 0 tries once.
   * @throws The signal's reason when it aborts; RatelimitError `INVALID_DURATION`, `INVALID_OPTION` on a
   * limiter that is built on a transaction (locks would be held all the while), and what {@link
   * Ratelimit.limit} throws.
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
    const { signal, ...limitOptions } = options
    const timeoutMs = parseDuration(timeout, 'The timeout', 0)
    checkOption(!isTransaction(this.#checker.home.db), 'blockUntilReady cannot wait inside a transaction.')
    const started = performance.now()
    for (;;) {
      signal?.throwIfAborted()
      const answer = await this.limit(key, limitOptions)
      if (answer.success || performance.now() - started + answer.retryAfter > timeoutMs) return answer
      await wait(Math.max(answer.retryAfter, 1), signal)
    }
  }

  /**
   * Gives the key its whole limit again.
   *
   * @throws RatelimitError `INVALID_KEY` before any SQL; and what {@link Ratelimit.limit} throws from the
   * database.
   */
  async resetUsedTokens(key: string, options: CallOptions = {}): Promise<void> {
    const limiter = this.#checked(key, options)
    const { namespace } = this.#checker
    try {
      await this.#at(options.tx, async (target) => {
        const statement = remove(target.table)
        await runOnce(target.db, statement, valuesOf(statement, { prefix: namespace.prefix, key }, {}))
      })
    } finally {
      this.#checker.forgetDenials(key)
    }
    // Without a row a bucket starts with its initialTokens, which may be fewer.
    if (!limiter.algorithm.startsFull) await this.limit(key, { ...options, rate: -limiter.params.limit })
  }

  /**
   * Deletes this prefix's expired rows now; calls do so by themselves, some at a time.
   *
   * @returns How many rows were deleted.
   * @throws RatelimitError what {@link Ratelimit.limit} throws from the database.
   */
  async cleanup(): Promise<number> {
    return this.#at(undefined, () => this.#checker.sweeper.sweepAll())
  }

  #request(key: string, options: LimitOptions): Request {
    const { rate = 1, force = false } = options
    const limiter = this.#checked(key, options)
    checkRate(rate, limiter)
    const purpose = force && rate > 0 ? 'adjust' : purposeOf(rate)
    return { key, rate, limiter, purpose, paidWindowStart: null }
  }

  #checked(key: string, { limiter = this.#limiter }: CallOptions): Limiter {
    checkKey(key, this.prefix)
    checkLimiter(limiter)
    return limiter
  }

  /**
   * Runs the work in the transaction that it joins. Alone, it tries again if it lost against another
   * transaction.
   */
  async #at<T>(tx: Database | undefined, work: (target: Target) => Promise<T>): Promise<T> {
    const joined = this.#checker.joined(tx)
    if (joined) return work(joined)
    await this.#checker.ensureTables()
    return retrying(() => work(this.#checker.home))
  }
}

const SHIPPED = { ephemeral: rateLimitEphemeral, durable: rateLimitDurable }

/** One of the calls of `Ratelimit.limitAll`. */
export interface LimitRequest {
  readonly ratelimit: Ratelimit
  readonly key: string
  /** What the call costs. 0 looks, a negative rate gives back. Default: `1`. */
  readonly rate?: number | undefined
  /** Another limit for this call. Default: the limiter's. */
  readonly limiter?: Limiter | undefined
}
