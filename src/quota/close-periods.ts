import type { RateLimitTables } from '../../schema/index.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { type Database, isTransaction } from '../kernel/database/database.ts'
import { SHIPPED } from '../kernel/database/table-name.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import { tableOf } from '../kernel/engine/own-layer.ts'
import type { EndedPeriod, Limiter } from '../kernel/limits/algorithm.ts'
import { hasPeriods, latestEndedStart } from '../kernel/limits/limiter.ts'
import { checkRows, checkUse } from '../kernel/options/checks.ts'
import type { AnyLayer } from '../kernel/options/choices.ts'
import { checkLimiter, checkOption, readClock } from '../kernel/options/validate.ts'
import { timeOf } from '../shared/number-columns.ts'
import { closeEnded } from './close-ended.ts'

interface CommonOptions {
  /** The prefix of the limiter whose periods are closed. */
  readonly prefix: string
  /** The most periods to close. Default: `100`. */
  readonly limit?: number
  /** Skips the keys up to this one, such as the last key of the call before. Default: none. */
  readonly after?: string | undefined
  /** Leaves periods that ended less than this ago, so that late settlements can correct them. Default: none. */
  readonly grace?: Duration
  /** Whether the rows are in the durable table, which holds quotas. Default: `true`. */
  readonly durable?: boolean
  /** Tables of your own, from `rateLimitTables`. Default: the two tables of the package. */
  readonly tables?: RateLimitTables
  /** The layers of the limiter, if one is the store of its rows: `citus()`. Default: none. */
  readonly use?: readonly AnyLayer[]
  /** The time, for tests. Default: the database's clock. */
  readonly clock?: () => Date
}

/** Options of `closePeriods`. */
export type ClosePeriodsOptions = CommonOptions &
  (
    | {
        /** The limit of all keys: a fixed or calendar window. */
        readonly limiter: Limiter
        readonly limiterOf?: never
      }
    | {
        readonly limiter?: never
        /**
         * The limit of a key: its customer's plan. With `hashKeys` the argument is the hash. It is asked for
         * one key after the other, so it may use the transaction. Keys whose limit has no periods are skipped.
         */
        readonly limiterOf: (key: string) => Limiter | Promise<Limiter>
      }
  )

const CLOSE_NAMES: NamesOf<ClosePeriodsOptions> = {
  prefix: true,
  limiter: true,
  limiterOf: true,
  limit: true,
  after: true,
  grace: true,
  durable: true,
  tables: true,
  use: checkUse,
  clock: true,
}

/** A key's period that is over. */
export interface ClosedPeriod extends EndedPeriod {
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
}

/**
 * Removes the rows of periods that are over and returns their usage, in your transaction: the records that you
 * write of them commit together with the removal.
 *
 * It skips rows that others have locked, so that several processes can close periods at once, and no call
 * waits. It reads the windows of the prefix in the order of their keys. Call it again until it returns fewer
 * than `limit`, with the last key as `after`, so that it reads no row twice.
 *
 * @returns The closed periods in the order of their keys.
 * @throws RatelimitError before any SQL `INVALID_PREFIX`, `INVALID_CLOCK`, and `INVALID_OPTION`, also outside
 * of a transaction and for a limiter without periods; then the database errors of `Ratelimit.limit`.
 *
 * @example
 * ```ts
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
 * import { closePeriods } from 'drizzle-ratelimit/quota'
 * import { db } from './app.ts'
 *
 * const limiter = calendarWindow(10_000, 'month')
 * await db.transaction(async (tx) => {
 *   for (const { key, start, end, used } of await closePeriods(tx, { prefix: 'api-calls', limiter })) {
 *     console.log(key, start, end, used) // insert it with `tx`
 *   }
 * })
 * ```
 */
export async function closePeriods(tx: Database, options: ClosePeriodsOptions): Promise<ClosedPeriod[]> {
  checkOptions(options, CLOSE_NAMES)
  checkRows(options)
  const {
    prefix,
    limiter,
    limiterOf,
    limit = 100,
    after = '',
    durable = true,
    tables = SHIPPED,
    use = [],
    clock,
    grace,
  } = options
  const graceMs = grace === undefined ? 0 : parseDuration(grace, 'grace')
  checkOption(isTransaction(tx), 'closePeriods needs a transaction of Drizzle.')
  checkOption(Number.isSafeInteger(limit) && limit > 0, 'limit must be a whole number above 0.')
  checkOption(typeof after === 'string', 'after must be a key.')
  const readTime = () => timeOf(tx, clock && (() => readClock(clock)))
  checkOption(
    (limiter === undefined) !== (limiterOf === undefined),
    'closePeriods needs either limiter or limiterOf.',
  )
  const table = tableOf(durable ? tables.durable : tables.ephemeral, use)
  const rows = { ...{ tx, table, prefix, limit, after }, ownClock: clock !== undefined, graceMs }
  if (limiterOf) {
    checkOption(typeof limiterOf === 'function', 'limiterOf must be a function.')
    // A period that is over stays over, so the time can be read before the locks.
    const now = await readTime()
    return closeEnded({ ...rows, limiterOf, now, latestStart: now })
  }
  checkLimiter(limiter)
  checkOption(hasPeriods(limiter), 'closePeriods needs a fixed or a calendar window.')
  const now = await readTime()
  const latestStart = latestEndedStart(limiter, now - graceMs)
  return closeEnded({ ...rows, limiterOf: () => limiter, now, latestStart })
}
