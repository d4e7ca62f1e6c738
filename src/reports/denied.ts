import type { RateLimitTable } from '../../schema/index.ts'
import type { AnyCredits } from '../any-credits.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { distinct, mustHave } from '../kernel/database/rows.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { textArray } from '../kernel/sql/calls.ts'
import type { Ratelimit } from '../ratelimit.ts'
import { denialsKey, deniedPrefix, HOUR, MINUTE, type Span, spanName } from '../shared/denied-rows.ts'
import { type LimiterRows, REPORT_NAMES, type ReportOptions, readingOf } from '../shared/limiter-rows.ts'
import { exactNumber, timeOf } from '../shared/number-columns.ts'
import { type Reading, readRows } from '../shared/read-rows.ts'
import { deniedInStatement, deniedStatement } from './sql/denied.ts'

/** Options of `denied`. */
export interface DeniedOptions extends ReportOptions {
  /**
   * The time from which denials count: with its whole hour, or in the last hour with its whole minute. Rows are
   * kept for a week. Default: a day ago.
   */
  readonly since?: Date | undefined
}

const DENIED_NAMES: NamesOf<DeniedOptions> = { ...REPORT_NAMES, since: checkSince }

/** A key and how often it was denied. */
export interface DeniedKey {
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** Denied calls. It is never too high, and may be too low: see `countDenials`. */
  readonly denials: number
}

const DAY_MS = 24 * HOUR.ms

/**
 * Lists the keys of a limiter that were denied most. The limiter must use `countDenials`.
 *
 * It reads every count of the prefix since then, takes no lock and writes nothing. It has no timeout.
 *
 * @param of The limiter. In a process that has none, where its rows are.
 * @throws RatelimitError before any SQL `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_CLOCK`; then the errors of
 * `Ratelimit.getRemaining`.
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { countDenials } from 'drizzle-ratelimit/denials'
 * import { denied } from 'drizzle-ratelimit/reports'
 * import { db } from './app.ts'
 *
 * const limiter = Ratelimit.fixedWindow(5, '1m')
 * export const logins = new Ratelimit({ db, limiter, prefix: 'logins', use: [countDenials()] })
 *
 * for (const { key, denials } of await denied(logins)) console.log(key, denials)
 *
 * // In another process:
 * await denied({ db, prefix: 'logins', durable: false })
 * ```
 */
export async function denied(
  of: Ratelimit | AnyCredits | LimiterRows,
  options: DeniedOptions = {},
): Promise<DeniedKey[]> {
  checkOptions(options, DENIED_NAMES)
  const { since, tx, top = 10 } = options
  const reading = readingOf(of, tx)
  const now = await timeOf(reading.db, reading.clock)
  const from = since?.getTime() ?? now - DAY_MS
  return (await deniedPage(reading, { now, from, part: '', top, offset: 0 })).keys
}

/** Which denied keys to read. */
export interface DeniedAsked {
  readonly now: number
  readonly from: number
  /** Only keys that have this part. Empty for all. */
  readonly part: string
  readonly top: number
  readonly offset: number
}

/** Some of the keys that were denied since a time, and how many there are. */
export async function deniedPage(
  reading: Reading,
  asked: DeniedAsked,
): Promise<{ readonly keys: DeniedKey[]; readonly total: number }> {
  const { now, part, top, offset } = asked
  // The rows of minutes are kept for an hour.
  const span = asked.from > now - HOUR.ms ? MINUTE : HOUR
  const from = Math.max(asked.from, now - span.keptMs)
  // A row ends so long after its first denial. It is not missed if the clock went back a little, or if it ends
  // on the grid of its limiter.
  const ends = { firstEnd: from + span.keptMs - 2 * span.ms, lastEnd: from + 3 * span.keptMs }
  const values = { since: spanName(span, from), ...ends, part, top, offset }
  const build = (table: RateLimitTable) => deniedStatement(table, span)
  const rows = distinct(await readRows(denialsOf(reading), `denied ${span.ms}`, build, values), 'key', top)
  const keys = rows.map((row) => ({ key: String(row['key']), denials: Number(mustHave(row['denials'])) }))
  return { keys, total: Number(rows[0] ? mustHave(rows[0]['total']) : 0) }
}

/** An hour or a minute and its denials. */
export interface DeniedIn {
  /** Unix milliseconds. */
  readonly start: number
  readonly denials: number
  /** Unix milliseconds at which the first of them was written. Undefined if there were none. */
  readonly first: number | undefined
}

export function denialsIn(times: readonly DeniedIn[]): number {
  return times.reduce((sum, { denials }) => sum + denials, 0)
}

/** How many denials the hours and minutes up to a time had: those of a key, or those of all keys. */
export async function deniedOver(
  reading: Reading,
  asked: { readonly now: number; readonly hours: number; readonly minutes: number; readonly key?: string },
): Promise<{ readonly hours: DeniedIn[]; readonly minutes: DeniedIn[] }> {
  const timesOf = (span: Span, count: number) =>
    Array.from({ length: count }, (_, place) => {
      const start = (Math.floor(asked.now / span.ms) - (count - 1 - place)) * span.ms
      return { start, key: denialsKey(spanName(span, start), asked.key) }
    })
  const [hours, minutes] = [timesOf(HOUR, asked.hours), timesOf(MINUTE, asked.minutes)]
  const keys = textArray([...hours, ...minutes].map(({ key }) => key))
  const rows = await readRows(denialsOf(reading), 'denied in', deniedInStatement, { keys })
  const found = new Map(rows.map((row) => [String(row['key']), row]))
  const counted = ({ start, key }: { start: number; key: string }): DeniedIn => {
    const row = found.get(key)
    return {
      start,
      denials: row ? Number(mustHave(row['denials'])) : 0,
      first: row && exactNumber(row['first']),
    }
  }
  return { hours: hours.map(counted), minutes: minutes.map(counted) }
}

/** The rows that count the denials. */
function denialsOf(reading: Reading): Reading {
  return { ...reading, prefix: deniedPrefix(reading.prefix) }
}

/** The year must have four digits, so that hours can be compared as texts. */
function checkSince(since: unknown): void {
  const isDate = since instanceof Date && since.getTime() >= 0 && since.getUTCFullYear() < 10_000
  checkOption(isDate, 'since must be a valid Date.')
}
