import { rateLimitDurable, rateLimitEphemeral } from '../schema/index.ts'
import type { Limiter } from './algorithms/algorithm.ts'
import { calendarWindowLimiter } from './algorithms/calendar-window.ts'
import { fixedWindowLimiter } from './algorithms/fixed-window.ts'
import { slidingWindowLimiter } from './algorithms/sliding-window.ts'
import { startsWhole, type TokenBucketOptions, tokenBucketLimiter } from './algorithms/token-bucket.ts'
import { isUnlimited, UNLIMITED } from './algorithms/unlimited.ts'
import {
  answerOf,
  denying,
  type LimitAllResult,
  type LimitResult,
  together,
  type Usage,
  unlimitedAnswer,
  usageOf,
} from './answer.ts'
import type { CalendarOptions, CalendarPeriod } from './calendar.ts'
import type { BlockOptions, CallOptions, LimitOptions, LimitRequest, RatelimitConfig } from './config.ts'
import { autoMigrateForbidden, ensureTables } from './database/auto-migrate.ts'
import { type Database, isTransaction } from './database/database.ts'
import { Naming } from './database/naming.ts'
import { inTransaction, retrying } from './database/retry.ts'
import { type Duration, parseDuration } from './duration.ts'
import { RatelimitError } from './errors.ts'
import { chargeAll } from './limit-all.ts'
import { type Reserved, reservationOf } from './reservation.ts'
import { Coalescer } from './runtime/coalescer.ts'
import {
  type Call,
  type Decision,
  decide,
  decisionFor,
  look,
  type Namespace,
  of,
  once,
  remove,
  type Target,
} from './runtime/decide.ts'
import { DenyCache, forgetDenials } from './runtime/deny-cache.ts'
import { sweep, sweepAll } from './runtime/sweep.ts'
import { wait } from './runtime/wait.ts'
import { checkConfig, checkKey, checkLimiter, checkOption, checkRate, readClock } from './validate.ts'

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
  readonly #home: Target
  readonly #namespace: Namespace
  readonly #reporting: Pick<Call, 'thresholds' | 'dryRun'>
  readonly #coalescer: Coalescer
  readonly #denials: DenyCache | undefined
  readonly #cleanupProbability: number
  readonly #ensureTables: () => Promise<void> | undefined

  constructor(config: RatelimitConfig) {
    checkConfig(config)
    const { db, limiter, prefix, durable = false, synchronousCommit = false } = config
    const { inMemoryBlock = false, maxBlockedKeys = 10_000 } = config
    const {
      cleanupProbability = 0.1,
      clock,
      tables = SHIPPED,
      autoMigrate = false,
      preparedStatements,
      thresholds = [],
      dryRun = false,
    } = config
    this.prefix = prefix
    this.#limiter = limiter
    this.#home = {
      db,
      table: durable ? tables.durable : tables.ephemeral,
      naming: new Naming(preparedStatements),
    }
    this.#reporting = { thresholds: [...new Set(thresholds)], dryRun }
    this.#namespace = { prefix, clock: clock ? () => readClock(clock) : () => null }
    this.#denials = inMemoryBlock
      ? new DenyCache(this.#home.table, this.#namespace, maxBlockedKeys)
      : undefined
    this.#cleanupProbability = cleanupProbability
    const migrates = autoMigrate && !autoMigrateForbidden()
    this.#ensureTables = () => (migrates ? ensureTables(db, tables) : undefined)
    const commit = durable ? (synchronousCommit ? 'flushed' : 'async') : 'as the session'
    this.#coalescer = new Coalescer(async (groups) => {
      await this.#ensureTables()
      return decide(this.#home, groups, commit, retrying)
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
   * `tokens` in any `window`, approximately: the previous window's count fades linearly while the current one runs.
   *
   * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`
   */
  static slidingWindow(tokens: number, window: Duration): Limiter {
    return slidingWindowLimiter(tokens, window)
  }

  /**
   * `tokens` in each `window`, which opens with the first call and at its end is over.
   *
   * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`
   */
  static fixedWindow(tokens: number, window: Duration): Limiter {
    return fixedWindowLimiter(tokens, window)
  }

  /**
   * `tokens` in each period of the calendar in a time zone, or in each one counted from an anchor: a subscription's start.
   *
   * Monthly from the 31st is the last day of shorter months and the 31st again. A local time that does not exist moves forward, one that
   * exists twice is the first. Weeks begin on Monday.
   *
   * @throws RatelimitError `INVALID_LIMIT`; `INVALID_OPTION` for an unknown period or zone, and an anchor that is no date or more than a
   * hundred years away.
   *
   * @example
   * ```ts
   * import { Ratelimit } from 'drizzle-ratelimit'
   *
   * Ratelimit.calendarWindow(10_000, 'month') // from the 1st, UTC
   * Ratelimit.calendarWindow(10_000, 'month', { timeZone: 'Europe/Berlin', anchor: new Date('2026-01-31T09:15:00Z') })
   * ```
   */
  static calendarWindow(tokens: number, period: CalendarPeriod, options?: CalendarOptions): Limiter {
    return calendarWindowLimiter(tokens, period, options)
  }

  /** No limit: always allowed, nothing is read or written. What is stored of the key stays, for the plan after it. */
  static unlimited(): Limiter {
    return UNLIMITED
  }

  /**
   * Decides and, when allowed, consumes. A denial writes nothing.
   *
   * With `tx` it joins your transaction: the row stays locked until that ends, and a rollback undoes the charge.
   *
   * @throws RatelimitError `INVALID_KEY`, `INVALID_RATE`, `INVALID_OPTION`, `INVALID_CLOCK` before any SQL; from the database
   * `MISSING_TABLE`, `OVERLOADED`, `CONTENTION`, `SERIALIZATION_FAILURE`, `DEADLOCK`, `TRANSACTION_ABORTED`, `UNREACHABLE`,
   * `OUTCOME_UNKNOWN`, `DATABASE`.
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
    return (await this.#charge(this.#call(key, options), options.tx)).answer
  }

  /**
   * Charges an estimate, to be corrected when the cost is known: `commit(actual)` or `release()`.
   *
   * What a crash between the two leaves is the estimate, charged.
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
    const call = this.#call(key, options)
    if (call.rate < 0) throw new RatelimitError('INVALID_RATE', 'What is reserved is a rate from 0 on.')
    const { answer, paidFrom } = await this.#charge(call, options.tx)
    if (!answer.success) return answer
    return reservationOf(answer, call.rate, async (difference, { tx, limiter = call.limiter }) => {
      // Another algorithm has not paid, and gives nothing back; what a dry run would have denied is not charged afterwards either.
      const elsewhere = difference < 0 && limiter.algorithm !== call.limiter.algorithm
      const rate = answer.wouldDeny || elsewhere ? 0 : difference
      const settling = { ...this.#call(key, { rate, limiter, force: true }), paidFrom }
      return (await this.#charge(settling, tx)).answer
    })
  }

  /** Charges the call in the transaction that it joins or by itself; says which window has paid. */
  async #charge(call: Call, tx: Database | undefined): Promise<Charged> {
    const joined = this.#joined(tx)
    if (isUnlimited(call.limiter)) return { answer: unlimitedAnswer(this.#clock()), paidFrom: null }
    const known = joined || call.force ? undefined : this.#denials?.answer(call)
    if (known) return { answer: denying(call, known), paidFrom: null }
    try {
      return await (joined ? this.#decideIn(joined, call) : this.#decideAlone(call))
    } finally {
      if (joined ? this.#maySoften(call) : call.rate < 0) this.#forgetDenials(call.key)
    }
  }

  /** Whether what is remembered of the key may be too strict after a transaction: another plan may have made its row anew. */
  #maySoften({ rate = 1, limiter = this.#limiter }: Pick<LimitOptions, 'rate' | 'limiter'>): boolean {
    return rate < 0 || limiter !== this.#limiter
  }

  /**
   * Several limits: all are consumed, or none is.
   *
   * Alone it opens a transaction of its own, which has to be one of Drizzle's interactive ones; with `tx` it joins yours. The
   * rows are locked in one order, so that it never deadlocks with itself or with single checks. The same row twice is added up.
   *
   * @throws RatelimitError `INVALID_OPTION` for no requests, for limiters of different databases, and for one row under different
   * limits; what {@link Ratelimit.limit} throws.
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
    const charges = requests.map(({ ratelimit, key, rate, limiter }) => ({
      ...ratelimit.#call(key, { rate, limiter }),
      table: ratelimit.#home.table,
    }))
    const [first, ...others] = new Set(requests.map(({ ratelimit }) => ratelimit))
    checkOption(first !== undefined, 'limitAll needs at least one request.')
    checkOption(
      others.every((other) => other.#home.db === first.#home.db),
      'limitAll needs limiters of one database.',
    )
    const joined = first.#joined(options.tx)
    if (charges.every(({ limiter }) => isUnlimited(limiter))) {
      return together(
        requests,
        charges.map(() => unlimitedAnswer(first.#clock())),
      )
    }
    try {
      if (joined) return together(requests, await chargeAll(joined, charges, first.#clock()))

      for (const ratelimit of [first, ...others]) await ratelimit.#ensureTables()
      const clocks = [first, ...others].map((ratelimit) => ratelimit.#namespace.clock())
      const results = await inTransaction(first.#home.db, (db) =>
        chargeAll({ ...first.#home, db }, charges, first.#clock()),
      )
      for (const [i, ratelimit] of [first, ...others].entries()) ratelimit.#sweepSometimes(clocks[i] ?? null)
      return together(requests, results)
    } finally {
      for (const { ratelimit, key, ...rest } of requests) {
        if (ratelimit.#maySoften(rest)) ratelimit.#forgetDenials(key)
      }
    }
  }

  /**
   * Looks: takes no lock, writes nothing.
   *
   * @throws RatelimitError `INVALID_KEY`, `INVALID_CLOCK` before any SQL; and what {@link Ratelimit.limit} throws from the database.
   */
  async getRemaining(key: string, options: CallOptions = {}): Promise<Usage> {
    const call = this.#call(key, { ...options, rate: 0 })
    const joined = this.#joined(options.tx)
    if (isUnlimited(call.limiter)) {
      const { limit, remaining, reset } = unlimitedAnswer(this.#clock())
      return { limit, remaining, reset, used: 0 }
    }
    const group = { ...call, calls: 1 }
    return this.#at(joined, async (target) => usageOf(call.limiter, of(group, await look(target, [group]))))
  }

  /**
   * Waits until the call is allowed, or gives the last denial when `timeout` cannot suffice.
   *
   * It holds no connection while it waits, and does not wait at all for what would come too late.
   *
   * @param timeout Milliseconds, or a string like `'30s'`; 0 tries once.
   * @throws The signal's reason when it aborts; RatelimitError `INVALID_DURATION`, `INVALID_OPTION` on a limiter that is built on a
   * transaction (locks would be held all the while), and what {@link Ratelimit.limit} throws.
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
    checkOption(!isTransaction(this.#home.db), 'blockUntilReady cannot wait inside a transaction.')
    const started = performance.now()
    for (;;) {
      signal?.throwIfAborted()
      const answer = await this.limit(key, limitOptions)
      if (answer.success || performance.now() - started + answer.retryAfter > timeoutMs) return answer
      await wait(answer.retryAfter, signal)
    }
  }

  /**
   * Gives the key its whole limit again.
   *
   * @throws RatelimitError `INVALID_KEY` before any SQL; and what {@link Ratelimit.limit} throws from the database.
   */
  async resetUsedTokens(key: string, options: CallOptions = {}): Promise<void> {
    const limiter = this.#checked(key, options)
    try {
      await this.#at(this.#joined(options.tx), (target) => remove(target, this.#namespace, key))
    } finally {
      this.#forgetDenials(key)
    }
    // Without a row a bucket starts with its initialTokens, which may be fewer.
    if (!startsWhole(limiter)) await this.limit(key, { ...options, rate: -limiter.params.limit })
  }

  /**
   * Deletes this prefix's expired rows now; calls do so by themselves, some at a time.
   *
   * @returns How many rows were deleted.
   * @throws RatelimitError what {@link Ratelimit.limit} throws from the database.
   */
  async cleanup(): Promise<number> {
    return this.#at(this.#joined(undefined), (target) => sweepAll(target, this.#namespace))
  }

  async #decideIn(joined: Target, call: Call): Promise<Charged> {
    const group = { ...call, calls: 1 }
    return chargedBy(call, decisionFor(group, await decide(joined, [group], 'as the session', once)), 0)
  }

  async #decideAlone(call: Call): Promise<Charged> {
    const clock = this.#namespace.clock()
    const sentAt = performance.now()
    const { decision, place } = await this.#coalescer.add(call)
    const charged = chargedBy(call, decision, place)
    this.#denials?.learn(call, decision, place < decision.granted, { sentAt, clock })
    this.#sweepSometimes(clock)
    return charged
  }

  /** Where the time decides nothing, this machine's will do. */
  #clock(): number {
    return this.#namespace.clock() ?? Date.now()
  }

  #forgetDenials(key: string): void {
    forgetDenials(this.#home.table, this.prefix, key)
  }

  #call(key: string, options: LimitOptions): Call {
    const { rate = 1, force = false } = options
    const limiter = this.#checked(key, options)
    checkRate(rate, limiter)
    const { thresholds, dryRun } = this.#reporting
    return { namespace: this.#namespace, key, rate, limiter, force, paidFrom: null, thresholds, dryRun }
  }

  #checked(key: string, { limiter = this.#limiter }: CallOptions): Limiter {
    checkKey(key, this.#namespace.prefix)
    checkLimiter(limiter)
    return limiter
  }

  #joined(tx: Database | undefined): Target | undefined {
    checkOption(tx === undefined || isTransaction(tx), 'tx must be a transaction of Drizzle.')
    if (tx) return { ...this.#home, db: tx }
    return isTransaction(this.#home.db) ? this.#home : undefined
  }

  /** Runs the work in the transaction that it joins, else on the database, and again when it lost against another. */
  async #at<T>(joined: Target | undefined, work: (target: Target) => Promise<T>): Promise<T> {
    if (joined) return work(joined)
    await this.#ensureTables()
    return retrying(() => work(this.#home))
  }

  #sweepSometimes(clock: number | null): void {
    if (Math.random() >= this.#cleanupProbability) return
    this.#coalescer.addAside(() => sweep(this.#home, this.#namespace, clock))
  }
}

interface Charged {
  readonly answer: LimitResult
  readonly paidFrom: number | null
}

function chargedBy(call: Call, decision: Decision, place: number): Charged {
  const isWindow = call.limiter.algorithm.writtenAt === 'windowStart'
  const paidFrom = isWindow ? decision.state.windowStart : null
  return { answer: answerOf(call, decision, place), paidFrom }
}

const SHIPPED = { ephemeral: rateLimitEphemeral, durable: rateLimitDurable }
