import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { type Database, isTransaction } from '../kernel/database/database.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import { hasPeriods } from '../kernel/limits/limiter.ts'
import { checkOption } from '../kernel/options/validate.ts'
import type { Ratelimit } from '../ratelimit.ts'
import {
  checkAboveZero,
  limitsOf,
  type OneLimitRows,
  type PlanOf,
  type PlanRows,
  readingOf,
} from '../shared/limiter-rows.ts'
import { timeOf } from '../shared/number-columns.ts'
import { type ClosedPeriod, closeEnded } from './close-ended.ts'

/** Options of `closePeriods`. */
export interface ClosePeriodsOptions {
  /** Your transaction, which also writes down what is returned. */
  readonly tx: Database
  /** The most periods to close. Default: `100`. */
  readonly limit?: number
  /** Skips the keys up to this one, such as the last key of the call before. Default: none. */
  readonly after?: string | undefined
  /** Leaves periods that ended less than this ago, so that late settlements can correct them. Default: none. */
  readonly grace?: Duration
}

/** Options of `closePeriods`, for a `Ratelimit` with a limit for each key. */
export interface ClosePlansOptions extends ClosePeriodsOptions {
  /**
   * The limit of a key: its customer's plan. With `hashKeys` the argument is the hash. It is asked for one key
   * after the other, so it may use the transaction. Keys whose limit has no periods are skipped.
   */
  readonly limiterOf: PlanOf
}

const CLOSE_NAMES: NamesOf<ClosePlansOptions> = {
  ...{ tx: true, limit: checkAboveZero, after: true, grace: true, limiterOf: true },
}

/**
 * Removes the rows of periods that are over and returns their usage, in your transaction: the records that you
 * write of them commit together with the removal.
 *
 * It skips rows that others have locked, so that several processes can close periods at once, and no call
 * waits. It reads the windows of the prefix in the order of their keys. Call it again until it returns fewer
 * than `limit`, with the last key as `after`, so that it reads no row twice.
 *
 * @param of The limiter. In a process that has none, where its rows are.
 * @returns The closed periods in the order of their keys.
 * @throws RatelimitError before any SQL `INVALID_PREFIX`, `INVALID_CLOCK`, and `INVALID_OPTION`, also without a
 * transaction and for a limiter without periods; then the database errors of `Ratelimit.limit`.
 *
 * @example
 * ```ts
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
 * import { closePeriods, Quota } from 'drizzle-ratelimit/quota'
 * import { db } from './app.ts'
 *
 * const limiter = calendarWindow(10_000, 'month')
 * const calls = new Quota({ db, limiter, prefix: 'api-calls', keepEnded: true })
 * await db.transaction(async (tx) => {
 *   for (const { key, start, end, used } of await closePeriods(calls, { tx })) {
 *     console.log(key, start, end, used) // insert it with `tx`
 *   }
 * })
 *
 * // In another process:
 * await db.transaction((tx) => closePeriods({ db, prefix: 'api-calls', limiter, durable: true }, { tx }))
 * ```
 */
export function closePeriods(of: Ratelimit, options: ClosePlansOptions): Promise<ClosedPeriod[]>
/** The same with one limit for all keys, or in a process without the limiter. */
export function closePeriods(
  of: Ratelimit | OneLimitRows | PlanRows,
  options: ClosePeriodsOptions,
): Promise<ClosedPeriod[]>
export async function closePeriods(
  of: Ratelimit | OneLimitRows | PlanRows,
  options: ClosePeriodsOptions & Partial<ClosePlansOptions>,
): Promise<ClosedPeriod[]> {
  checkOptions(options, CLOSE_NAMES)
  const { tx, limit = 100, after = '', grace } = options
  const graceMs = grace === undefined ? 0 : parseDuration(grace, 'grace')
  checkOption(isTransaction(tx), 'closePeriods needs tx, a transaction of Drizzle.')
  checkOption(typeof after === 'string', 'after must be a key.')
  const { table, prefix, clock } = readingOf(of, tx)
  const limits = limitsOf(of, options.limiterOf, 'closePeriods')
  const isOfKeys = typeof limits === 'function'
  checkOption(isOfKeys || hasPeriods(limits), 'closePeriods needs a fixed or a calendar window.')
  // A period that is over stays over, so the time can be read before the locks.
  const now = await timeOf(tx, clock)
  return closeEnded({
    ...{ tx, table, prefix, limit, after, graceMs, now, ownClock: clock !== undefined },
    limiterOf: isOfKeys ? limits : () => limits,
    latestStart: isOfKeys ? now : latestEndedStart(limits, now - graceMs),
  })
}

/** The latest start of a period that is over. */
function latestEndedStart({ params, periodAt }: StoredLimiter, now: number): number {
  return periodAt ? periodAt(now).start - 1 : now - params.periodMs
}
