import type { RateLimitTables } from '../../schema/index.ts'
import type { EndedPeriod, Limiter } from '../algorithms/algorithm.ts'
import { hasPeriods, latestEndedStart } from '../algorithms/limiter.ts'
import { type Database, isTransaction } from '../database/database.ts'
import { checkOptions, type NamesOf } from '../options.ts'
import { SHIPPED } from '../tables/shipped.ts'
import { checkLimiter, checkOption, checkRows } from '../validate.ts'
import { timeOf } from './clock.ts'
import { closeEnded } from './close-ended.ts'

interface CommonOptions {
  /** The prefix of the limiter whose periods are closed. */
  readonly prefix: string
  /** How many periods at most. Default: `100`. */
  readonly limit?: number
  /** Leaves out the keys up to this one: the last key of the call before. Default: none. */
  readonly after?: string | undefined
  /** Whether they are in the durable table, which holds quotas. Default: `true`. */
  readonly durable?: boolean
  /** Tables of your own, from `rateLimitTables`. Default: the shipped two. */
  readonly tables?: RateLimitTables
  /** The time, for tests. Default: the database's clock. */
  readonly clock?: () => Date
}

/** Which periods to close. */
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
         * The limit of a key: its customer's plan. With `hashKeys` it is given the hash. Keys whose limit has
         * no periods are left alone.
         */
        readonly limiterOf: (key: string) => Limiter
      }
  )

const CLOSE_NAMES: NamesOf<ClosePeriodsOptions> = {
  prefix: true,
  limiter: true,
  limiterOf: true,
  limit: true,
  after: true,
  durable: true,
  tables: true,
  clock: true,
}

/** A period that is over, and whose it was. */
export interface ClosedPeriod extends EndedPeriod {
  /** As it is stored: with `hashKeys`, the hash. */
  readonly key: string
}

/**
 * Hands out what keys used in periods that are over, and removes their rows, in your transaction: what you
 * write of them commits together with the removal.
 *
 * Rows that others have locked are left out, so that several may close at once, and no call waits. It reads
 * the windows of the prefix in the order of their keys. Call it again until it finds fewer than `limit`, with
 * the last key as `after`, so that no row is read twice.
 *
 * @returns The closed periods in the order of their keys.
 * @throws RatelimitError `INVALID_PREFIX`, `INVALID_CLOCK`, `INVALID_OPTION` before any SQL, also outside of a
 * transaction and for a limiter without periods; and what `Ratelimit.limit` throws from the database.
 *
 * @example
 * ```ts
 * import { closePeriods } from 'drizzle-ratelimit'
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
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
    clock,
  } = options
  checkOption(isTransaction(tx), 'closePeriods needs a transaction of Drizzle.')
  checkOption(Number.isSafeInteger(limit) && limit > 0, 'limit must be a whole number above 0.')
  checkOption(typeof after === 'string', 'after must be a key.')
  checkOption(
    (limiter === undefined) !== (limiterOf === undefined),
    'closePeriods takes limiter or limiterOf, and not both.',
  )
  const table = durable ? tables.durable : tables.ephemeral
  if (limiterOf) {
    checkOption(typeof limiterOf === 'function', 'limiterOf must be a function.')
    // A period that is over now is over at all later times, so the time need not wait for the locks.
    const now = await timeOf(tx, clock)
    return closeEnded({ tx, table, prefix, limit, after, limiterOf, now, latestStart: now })
  }
  checkLimiter(limiter)
  checkOption(hasPeriods(limiter), 'closePeriods needs a fixed or a calendar window.')
  const now = await timeOf(tx, clock)
  const latestStart = latestEndedStart(limiter, now)
  return closeEnded({ tx, table, prefix, limit, after, limiterOf: () => limiter, now, latestStart })
}
