import type { AnyCredits } from '../any-credits.ts'
import { usageOf } from '../kernel/answers/answer.ts'
import { behindBlock } from '../kernel/answers/capacity.ts'
import type { Usage } from '../kernel/answers/results.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { distinct } from '../kernel/database/rows.ts'
import type { Row } from '../kernel/database/run.ts'
import { handleIn } from '../kernel/engine/handles.ts'
import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import { appliesAt, paramsAt } from '../kernel/limits/limiter.ts'
import { checkOption } from '../kernel/options/validate.ts'
import type { Ratelimit } from '../ratelimit.ts'
import {
  limitsOf,
  type OneLimitRows,
  type PlanOf,
  type PlanRows,
  REPORT_NAMES,
  type ReportOptions,
  readingOf,
} from '../shared/limiter-rows.ts'
import { exactNumber, stateIn, timeOf } from '../shared/number-columns.ts'
import { type Reading, readRows } from '../shared/read-rows.ts'
import { shownIn } from '../shared/shown.ts'
import { usageStatement } from './sql/usage.ts'
import { blockIn, gatesOf, lookAtEach, type TopReading, usageByPlan } from './usage-by-plan.ts'

/** Options of `usage`, for a `Ratelimit` with a limit for each key. */
export interface PlanUsageOptions extends ReportOptions {
  /** The limit of a key: its customer's plan. It is asked for up to a thousand keys at once. */
  readonly limiterOf: PlanOf
}

const USAGE_NAMES: NamesOf<PlanUsageOptions> = { ...REPORT_NAMES, limiterOf: true }

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
  /** With `blocks()`: Unix milliseconds at which the block of the key ends. Only while it is blocked. */
  readonly blockedUntil?: number
}

/**
 * Lists the keys of a limiter that have used most. Keys without usage are not in the list. A key that is
 * blocked has `blockedUntil`, also one of a limiter with `blocks()`.
 *
 * With `limiterOf` each key is read under its own plan, a thousand rows at a time. With one limit, keys on
 * plans of another algorithm or period are in the list with `isOther: true`.
 *
 * It reads every row of the prefix, takes no lock and writes nothing. It has no timeout.
 *
 * @param of The limiter. In a process that has none, where its rows are.
 * @throws RatelimitError before any SQL `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_CLOCK`; then the errors of
 * `Ratelimit.getRemaining`.
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
 * import { usage } from 'drizzle-ratelimit/reports'
 * import { db } from './app.ts'
 *
 * const plan = calendarWindow(10_000, 'month')
 * const calls = new Ratelimit({ db, limiter: plan, prefix: 'api-calls', durable: true })
 * for (const { key, used, limit } of await usage(calls, { top: 20 })) console.log(key, used, limit)
 *
 * // In another process:
 * await usage({ db, prefix: 'api-calls', limiter: plan, durable: true }, { top: 20 })
 * ```
 */
export function usage(of: Ratelimit, options: PlanUsageOptions): Promise<KeyUsage[]>
/** The same in a process without the limiter, with a limit for each key. */
export function usage(of: PlanRows, options?: ReportOptions): Promise<KeyUsage[]>
/** The same with one limit for all keys. */
export function usage(
  of: Ratelimit | AnyCredits | OneLimitRows,
  options?: ReportOptions,
): Promise<(KeyUsage | OtherUsage)[]>
export async function usage(
  of: Ratelimit | AnyCredits | OneLimitRows | PlanRows,
  options: Partial<PlanUsageOptions> = {},
): Promise<(KeyUsage | OtherUsage)[]> {
  checkOptions(options, USAGE_NAMES)
  const { tx, top = 10 } = options
  const reading = { ...readingOf(of, tx), top }
  const limits = limitsOf(of, options.limiterOf, 'usage')
  if (typeof limits === 'function') return usageByPlan(reading, limits)
  if (handleIn(of)?.funded) return usageOfFunds(of, reading)
  checkOption(limits.stored, 'usage needs a limiter with a limit: an unlimited plan has no rows.')
  return usageUnder(reading, limits)
}

/** The keys that have used most of what has several rows, which says itself what they have used. */
async function usageOfFunds(of: object, { db, top, clock }: TopReading): Promise<KeyUsage[]> {
  const { mostUsed } = (await shownIn(of)?.load()) ?? {}
  checkOption(mostUsed !== undefined, 'ratelimit must be a limiter of this version of the package.')
  return mostUsed({ db, top, now: await timeOf(db, clock) })
}

/** The keys that have used most under one limit. */
async function usageUnder(reading: TopReading, limiter: StoredLimiter): Promise<(KeyUsage | OtherUsage)[]> {
  const { top } = reading
  const name = `usage ${limiter.algorithm.name}`
  const time = await timeOf(reading.db, reading.clock)
  const params = paramsAt(limiter, time)
  const { periodStart = 0 } = params
  const previousStart = limiter.periodAt?.(periodStart - 1).start ?? null
  const sent = { gates: gatesOf(reading.prefix), top, clock: time, previousStart }
  const rows = await readRows(reading, name, (table) => usageStatement(table, limiter), sent, params)
  const found = distinct(rows, 'key', top)
  const rowsAhead = found.filter((row) => limiter.periodAt && !appliesAt(params, nowIn(row)))
  const ahead = await usedAhead(reading, limiter, rowsAhead, time)
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
  reading: Reading,
  limiter: StoredLimiter,
  rows: readonly Row[],
  time: number,
): Promise<ReadonlyMap<string, KeyUsage>> {
  // Such a row is read at its own start.
  const starts = new Map(rows.map((row) => [String(row['key']), nowIn(row)]))
  const planned = [...starts.keys()].map((key) => ({ key, limiter }))
  const looked = await lookAtEach(reading, planned, time)
  return new Map(looked.filter(({ key, start }) => start === starts.get(key)).map((each) => [each.key, each]))
}

function nowIn(row: Row): number {
  return exactNumber(row['now'])
}
