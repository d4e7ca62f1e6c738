import type { AnyCredits } from '../any-credits.ts'
import { CLOSING, openedIn } from '../estimates/estimate-row.ts'
import { nameIn } from '../estimates/names.ts'
import { openStatement } from '../estimates/sql/estimates.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { uncharged } from '../kernel/database/database-error.ts'
import { distinct } from '../kernel/database/rows.ts'
import { runOnce } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import { checkKey, checkOption } from '../kernel/options/validate.ts'
import { RESERVED_PREFIX } from '../kernel/sql/own-prefixes.ts'
import type { Ratelimit } from '../ratelimit.ts'
import { type LimiterRows, readingOf } from '../shared/limiter-rows.ts'
import { stateIn } from '../shared/number-columns.ts'

/** Options of `openReservations`. */
export interface OpenReservationsOptions extends TxOptions {
  /** Lists those of one key, as it is stored: with `hashKeys`, the hash. Default: those of all keys. */
  readonly key?: string | undefined
  /** The most reservations to list. Default: `100`. */
  readonly limit?: number
}

const OPEN_NAMES: NamesOf<OpenReservationsOptions> = { ...CALLS.tx, key: true, limit: true }

/** A reservation with a name that is not settled. */
export interface OpenReservation {
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** The name as it is stored: with `hashKeys`, the hash. */
  readonly id: string
  /** The charged estimate; 0 if a dry run let it pass. */
  readonly rate: number
  /** Unix milliseconds at which `settleExpired` may end it. */
  readonly expires: number
}

/**
 * Lists the reservations with a name that are not settled, those that end first before the others. It takes no
 * lock and writes nothing.
 *
 * @param of The limiter, or the credits. In a process that has none, where its rows are.
 * @throws RatelimitError before any SQL `INVALID_PREFIX`, `INVALID_KEY`, `INVALID_OPTION`; then the errors of
 * `Ratelimit.getRemaining`.
 *
 * @example
 * ```ts
 * import type { Credits } from 'drizzle-ratelimit/credits'
 * import { openReservations } from 'drizzle-ratelimit/quota'
 *
 * declare const credits: Credits
 * for (const { key, id, rate, expires } of await openReservations(credits)) {
 *   console.log(key, id, rate, new Date(expires))
 * }
 * ```
 */
export async function openReservations(
  of: Ratelimit | AnyCredits | LimiterRows,
  options: OpenReservationsOptions = {},
): Promise<OpenReservation[]> {
  checkOptions(options, OPEN_NAMES)
  const { key, limit = 100, tx } = options
  const { db, table, prefix } = readingOf(of, tx)
  checkOption(Number.isSafeInteger(limit) && limit > 0, 'limit must be a whole number above 0.')
  const isOfKey = key !== undefined
  if (isOfKey) checkKey(key, prefix)
  const statement = kept(table.statements, `open ${isOfKey}`, () => openStatement(table.table, isOfKey))
  const own = { from: `${key}/`, to: `${key}/z` }
  const rows = await uncharged(
    runOnce({ db }, statement, { prefix: RESERVED_PREFIX + prefix, size: limit, ...own }),
  )
  return distinct(rows, 'key', limit).flatMap((row) => {
    const name = nameIn(String(row['key']))
    const seen = openedIn(stateIn(row, CLOSING))
    return seen ? [{ ...name, rate: seen.rate, expires: seen.endMs }] : []
  })
}
