import { sql } from 'drizzle-orm'
import type { RateLimitTables } from '../schema/index.ts'
import type { Limiter } from './algorithms/algorithm.ts'
import { paramsAt } from './algorithms/limiter.ts'
import { usageOf } from './check/answer.ts'
import type { Usage } from './check/results.ts'
import { SHIPPED_TABLES } from './check/setup.ts'
import type { Database } from './database/database.ts'
import { execute, runOnce } from './database/run.ts'
import { RatelimitError } from './errors.ts'
import { stateIn } from './runtime/ask.ts'
import { CLOCK_MS } from './statements/levels.ts'
import { kept, statementsOf } from './statements/statements.ts'
import { usageStatement } from './statements/usage.ts'
import { checkLimiter, checkOption, checkPrefix, readClock } from './validate.ts'

/** What to look for. */
export interface UsageOptions {
  /** The prefix of the limiter whose keys are listed. */
  readonly prefix: string
  /** The limit by which the rows are read. */
  readonly limiter: Limiter
  /** How many keys at most. Default: `10`. */
  readonly top?: number
  /** Whether to read the durable table, which holds quotas. Default: `true`. */
  readonly durable?: boolean
  /** Tables of your own, from `rateLimitTables`. Default: the shipped two. */
  readonly tables?: RateLimitTables
  /** The time, for tests. Default: the database's clock. */
  readonly clock?: () => Date
}

/** A key and what it has used. */
export interface KeyUsage extends Usage {
  /** As it is stored: with `hashKeys`, the hash. */
  readonly key: string
}

/**
 * The keys of a prefix that have used most, for people to look at. Keys that have used nothing are left out.
 *
 * It reads every row of the prefix, takes no lock and writes nothing.
 *
 * @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION` before any SQL; and what `Ratelimit.getRemaining`
 * throws.
 *
 * @example
 * ```ts
 * import { drizzle } from 'drizzle-orm/node-postgres'
 * import { usage } from 'drizzle-ratelimit'
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
 *
 * const db = drizzle(process.env.DATABASE_URL!)
 * const plan = calendarWindow(10_000, 'month')
 * for (const { key, used, limit } of await usage(db, { prefix: 'api-calls', limiter: plan, top: 20 })) {
 *   console.log(key, used, limit)
 * }
 * ```
 */
export async function usage(db: Database, options: UsageOptions): Promise<KeyUsage[]> {
  const { prefix, limiter, top = 10, durable = true, tables = SHIPPED_TABLES, clock } = options
  checkPrefix(prefix)
  checkLimiter(limiter)
  checkOption(limiter.stored, 'usage needs a limit to read the rows by.')
  checkOption(Number.isSafeInteger(top) && top > 0, 'top must be a whole number above 0.')
  const table = durable ? tables.durable : tables.ephemeral
  const injected = clock ? readClock(clock) : null
  const isInjected = injected !== null
  const name = `usage ${limiter.algorithm.name} ${limiter.startsFull} ${isInjected}`
  const statement = kept(statementsOf(table), name, () => usageStatement(table, limiter, isInjected))
  let time = injected ?? Date.now()
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const params = paramsAt(limiter, time)
    const rows = await runOnce(db, statement, { prefix, top, clock: injected }, params)
    const found = rows.map((row) => ({
      key: String(row['key']),
      snapshot: { now: Number(row['now']), state: stateIn(row, limiter), params },
    }))
    const read = () => found.map(({ key, snapshot }) => ({ key, ...usageOf(limiter, snapshot) }))
    if (!limiter.periodAt) return read()
    // Rows of other periods than the guessed one are not found. If none is found, ask the database for its
    // time.
    const now = found[0]?.snapshot.now ?? injected ?? (await databaseClock(db))
    if (limiter.periodAt(now).start === params['periodStart']) return read()
    time = now
  }
  throw new RatelimitError('DATABASE', "The database's clock jumped from one period to another and back.")
}

/** The period may end while the rows are read, but not again and again. */
const MAX_TRIES = 10

async function databaseClock(db: Database): Promise<number> {
  const [row] = await execute(db, sql`select ${CLOCK_MS} as now`)
  return Number(row?.['now'])
}
