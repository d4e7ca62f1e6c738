import type { AnyCredits } from '../any-credits.ts'
import { type OpenReservation, readOpen } from '../estimates/read-open.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import { checkKey } from '../kernel/options/validate.ts'
import type { Ratelimit } from '../ratelimit.ts'
import { checkAboveZero, type LimiterRows, readingOf } from '../shared/limiter-rows.ts'

/** Options of `openReservations`. */
export interface OpenReservationsOptions extends TxOptions {
  /** Lists those of one key, as it is stored: with `hashKeys`, the hash. Default: those of all keys. */
  readonly key?: string | undefined
  /** The most reservations to list. Default: `100`. */
  readonly limit?: number
}

const OPEN_NAMES: NamesOf<OpenReservationsOptions> = { ...CALLS.tx, key: true, limit: checkAboveZero }

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
  const reading = readingOf(of, tx)
  if (key !== undefined) checkKey(key, reading.prefix)
  return readOpen(reading, { key, size: limit })
}
