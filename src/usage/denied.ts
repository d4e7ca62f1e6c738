import type { RateLimitTable, RateLimitTables } from '../../schema/index.ts'
import { checkOptions, type NamesOf } from '../base/check-options.ts'
import type { Database } from '../database/database.ts'
import { uncharged } from '../database/database-error.ts'
import { checkDatabase } from '../database/given.ts'
import { distinct, mustHave } from '../database/rows.ts'
import { runOnce } from '../database/run.ts'
import { checkOption, checkRows } from '../options/validate.ts'
import { deniedByHourStatement, deniedPrefix, deniedStatement, hourOf } from '../statements/denied.ts'
import { kept, statementsOf } from '../statements/statements.ts'
import { SHIPPED } from '../tables/shipped.ts'
import { timeOf } from './clock.ts'

/** Options of `denied`. */
export interface DeniedOptions {
  /** The prefix of the limiter whose denials are listed. */
  readonly prefix: string
  /** The time from which denials count, with its whole hour. Rows are kept for a week. Default: a day ago. */
  readonly since?: Date
  /** The most keys to list. Default: `10`. */
  readonly top?: number
  /** Whether to read the durable table, as for `usage`. Default: `true`. */
  readonly durable?: boolean
  /** Tables of your own, from `rateLimitTables`. Default: the two tables of the package. */
  readonly tables?: RateLimitTables
  /** The time, for tests. Default: the database's clock. */
  readonly clock?: () => Date
}

const DENIED_NAMES: NamesOf<DeniedOptions> = {
  prefix: true,
  since: true,
  top: true,
  durable: true,
  tables: true,
  clock: true,
}

/** A key and how often it was denied. */
export interface DeniedKey {
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** Denied calls. It is never too high, and may be too low: see the option `denials` of `Ratelimit`. */
  readonly denials: number
}

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/**
 * Lists the keys of a prefix that were denied most. The limiter must have the option `denials`.
 *
 * It reads every count of the prefix since then, takes no lock and writes nothing.
 *
 * @throws RatelimitError before any SQL `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_CLOCK`; then the errors of
 * `Ratelimit.getRemaining`.
 *
 * @example
 * ```ts
 * import { denied, Ratelimit } from 'drizzle-ratelimit'
 * import { db } from './app.ts'
 *
 * const limiter = Ratelimit.fixedWindow(5, '1m')
 * export const logins = new Ratelimit({ db, limiter, prefix: 'logins', denials: { every: '10s' } })
 *
 * for (const { key, denials } of await denied(db, { prefix: 'logins', durable: false })) {
 *   console.log(key, denials)
 * }
 * ```
 */
export async function denied(db: Database, options: DeniedOptions): Promise<DeniedKey[]> {
  checkDatabase(db)
  checkOptions(options, DENIED_NAMES)
  checkRows(options)
  const { prefix, since, top = 10, durable = true, tables = SHIPPED, clock } = options
  checkOption(Number.isSafeInteger(top) && top > 0, 'top must be a whole number above 0.')
  checkOption(since === undefined || isDate(since), 'since must be a valid Date.')
  const table = durable ? tables.durable : tables.ephemeral
  const from = since?.getTime() ?? (await timeOf(db, clock)) - DAY_MS
  const statement = kept(statementsOf(table), 'denied', () => deniedStatement(table))
  const rows = await uncharged(
    runOnce({ db }, statement, { prefix: deniedPrefix(prefix), since: hourOf(from), top }),
  )
  return distinct(rows, 'key', top).map((row) => ({
    key: String(row['key']),
    denials: Number(mustHave(row['denials'])),
  }))
}

/** An hour and its denials. */
export interface DeniedHour {
  /** Unix milliseconds. */
  readonly start: number
  readonly denials: number
}

/** The rows to read, and the clock. */
interface Reading {
  readonly db: Database
  readonly table: RateLimitTable
  readonly prefix: string
  /** Undefined for the database's clock. */
  readonly clock: (() => Date) | undefined
}

/** How many denials each of the last hours had, up to the present one: those of a key, or those of all keys. */
export async function deniedByHour(
  { db, table, prefix, clock }: Reading,
  hours: number,
  key = '',
): Promise<DeniedHour[]> {
  const first = (await timeOf(db, clock)) - (hours - 1) * HOUR_MS
  const starts = Array.from({ length: hours }, (_, place) => hourOf(first + place * HOUR_MS))
  const statement = kept(statementsOf(table), 'denied by hour', () => deniedByHourStatement(table))
  const values = { prefix: deniedPrefix(prefix), since: starts[0] ?? '', key }
  const rows = await uncharged(runOnce({ db }, statement, values))
  const counts = new Map(rows.map((row) => [String(row['hour']), Number(mustHave(row['denials']))]))
  return starts.map((hour) => ({ start: Date.parse(`${hour}:00Z`), denials: counts.get(hour) ?? 0 }))
}

/** Whether it is a date whose year has four digits, so that hours can be compared as texts. */
function isDate(value: unknown): boolean {
  return value instanceof Date && value.getTime() >= 0 && value.getUTCFullYear() < 10_000
}
