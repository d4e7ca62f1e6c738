import type { RateLimitTables } from '../../schema/index.ts'
import type { Limiter, StoredLimiter } from '../algorithms/algorithm.ts'
import { appliesAt, paramsAt } from '../algorithms/limiter.ts'
import { usageOf } from '../answers/answer.ts'
import { behindBlock } from '../answers/behind-block.ts'
import type { Usage } from '../answers/results.ts'
import { checkOptions, checkSwitch, type NamesOf } from '../base/check-options.ts'
import type { Database } from '../database/database.ts'
import { uncharged } from '../database/database-error.ts'
import { checkDatabase } from '../database/given.ts'
import { distinct } from '../database/rows.ts'
import { type Row, runOnce } from '../database/run.ts'
import { checkLimiter, checkOption, checkRows } from '../options/validate.ts'
import { exactNumber, stateIn } from '../runtime/number-columns.ts'
import { tableOf } from '../runtime/table-of.ts'
import { kept } from '../statements/statements.ts'
import { usageStatement } from '../statements/usage.ts'
import { SHIPPED } from '../tables/shipped.ts'
import { timeOf } from './clock.ts'
import { blockIn, gatesOf, lookAtEach, type Reading, usageByPlan } from './usage-by-plan.ts'

/** Options of `usage`, with one limit for all keys. */
export interface UsageOptions {
  /** The prefix of the limiter whose keys are listed. */
  readonly prefix: string
  /** The limit by which all rows are read. */
  readonly limiter: Limiter
  /** Not together with `limiter`. */
  readonly limiterOf?: never
  /** The most keys to list. Default: `10`. */
  readonly top?: number
  /** Whether to read the durable table, which holds quotas. Default: `true`. */
  readonly durable?: boolean
  /** Tables of your own, from `rateLimitTables`. Default: the two tables of the package. */
  readonly tables?: RateLimitTables
  /** Whether Citus has distributed the table by `key`. Default: `false`. */
  readonly distributed?: boolean
  /** The time, for tests. Default: the database's clock. */
  readonly clock?: () => Date
}

/** Options of `usage`, with a limit for each key. */
export interface PlanUsageOptions extends Omit<UsageOptions, 'limiter' | 'limiterOf'> {
  /** Not together with `limiterOf`. */
  readonly limiter?: never
  /** The limit of a key: its customer's plan. */
  readonly limiterOf: (key: string) => Limiter
}

const USAGE_NAMES: NamesOf<UsageOptions | PlanUsageOptions> = {
  prefix: true,
  limiter: true,
  limiterOf: true,
  top: true,
  durable: true,
  tables: true,
  distributed: true,
  clock: true,
}

/** A key and its usage. */
export interface KeyUsage extends Usage {
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** Distinguishes it from `OtherUsage`. */
  readonly isOther?: never
}

/** A key whose row has another algorithm or period than the limiter of the list. */
export interface OtherUsage {
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** Distinguishes it from `KeyUsage`. */
  readonly isOther: true
  /** The used units that the row has counted; 0 if the row counts remaining units. */
  readonly used: number
  /** Unknown. */
  readonly limit?: never
  /** Unknown. */
  readonly remaining?: never
  /** Unknown. */
  readonly reset?: never
  /** Unknown. */
  readonly start?: never
  /** With `blocks: true`: Unix milliseconds at which the block of the key ends. Only while it is blocked. */
  readonly blockedUntil?: number
}

/**
 * Lists the keys of a prefix that have used most. Keys without usage are not in the list. A key that is blocked
 * has `blockedUntil`, also one of a limiter with `blocks: true`.
 *
 * With `limiterOf` each key is read under its own plan, a thousand rows at a time. With one `limiter`, keys on
 * plans of another algorithm or period are in the list with `isOther: true`.
 *
 * It reads every row of the prefix, takes no lock and writes nothing.
 *
 * @throws RatelimitError before any SQL `INVALID_PREFIX`, `INVALID_OPTION`; then the errors of
 * `Ratelimit.getRemaining`.
 *
 * @example
 * ```ts
 * import { usage } from 'drizzle-ratelimit'
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
 * import { db } from './app.ts'
 *
 * const plan = calendarWindow(10_000, 'month')
 * for (const { key, used, limit } of await usage(db, { prefix: 'api-calls', limiter: plan, top: 20 })) {
 *   console.log(key, used, limit)
 * }
 * ```
 */
export function usage(db: Database, options: PlanUsageOptions): Promise<KeyUsage[]>
/** The same with one limit for all keys. */
export function usage(db: Database, options: UsageOptions): Promise<(KeyUsage | OtherUsage)[]>
export async function usage(
  db: Database,
  options: UsageOptions | PlanUsageOptions,
): Promise<(KeyUsage | OtherUsage)[]> {
  checkDatabase(db)
  checkOptions(options, USAGE_NAMES)
  checkRows(options)
  const {
    prefix,
    limiter,
    limiterOf,
    top = 10,
    durable = true,
    tables = SHIPPED,
    distributed = false,
    clock,
  } = options
  checkOption(Number.isSafeInteger(top) && top > 0, 'top must be a whole number above 0.')
  const table = durable ? tables.durable : tables.ephemeral
  checkSwitch(distributed, 'distributed')
  const reading = { db, table: tableOf(table, distributed), prefix, top, clock }
  if (limiterOf === undefined) {
    checkLimiter(limiter)
    checkOption(limiter.stored, 'usage needs a limiter with a limit: an unlimited plan has no rows.')
    return usageUnder(reading, limiter)
  }
  checkOption(typeof limiterOf === 'function', 'limiterOf must be a function.')
  checkOption(limiter === undefined, 'usage needs either limiter or limiterOf.')
  return usageByPlan(reading, limiterOf)
}

/** The keys that have used most under one limit. */
export async function usageUnder(
  reading: Reading,
  limiter: StoredLimiter,
): Promise<(KeyUsage | OtherUsage)[]> {
  const { db, table, prefix, top, clock } = reading
  const name = `usage ${limiter.algorithm.name}`
  const statement = kept(table.statements, name, () => usageStatement(table.table, limiter))
  const time = await timeOf(db, clock)
  const params = paramsAt(limiter, time)
  const { periodStart = 0 } = params
  const previousStart = limiter.periodAt?.(periodStart - 1).start ?? null
  const sent = { prefix, gates: gatesOf(prefix), top, clock: time, previousStart }
  const rows = await uncharged(runOnce({ db }, statement, sent, params))
  const found = distinct(rows, 'key', top)
  const ahead = await usedAhead(
    found.filter((row) => limiter.periodAt && !appliesAt(params, nowIn(row))),
    (keys) =>
      lookAtEach(
        reading,
        keys.map((key) => ({ key, limiter })),
        time,
      ),
  )
  return found.map((row) => {
    const [key, now] = [String(row['key']), nowIn(row)]
    const blockedUntil = blockIn(row, now)
    if (row['like'] === true) {
      const found = usageOf(limiter, { now, state: stateIn(row, limiter), params })
      return { key, ...behindBlock(found, blockedUntil) }
    }
    const other = { key, used: exactNumber(row['counted']), isOther: true } as const
    return ahead.get(key) ?? (blockedUntil === undefined ? other : { ...other, blockedUntil })
  })
}

/**
 * The usage of rows that a clock ahead of this one has written. Such a row counts if it begins together with
 * the next period.
 */
async function usedAhead(
  rows: readonly Row[],
  look: (keys: readonly string[]) => Promise<readonly KeyUsage[]>,
): Promise<ReadonlyMap<string, KeyUsage>> {
  if (rows.length === 0) return new Map()
  // Such a row is read at its own start.
  const starts = new Map(rows.map((row) => [String(row['key']), nowIn(row)]))
  const looked = await look([...starts.keys()])
  return new Map(looked.filter(({ key, start }) => start === starts.get(key)).map((each) => [each.key, each]))
}

function nowIn(row: Row): number {
  return exactNumber(row['now'])
}
