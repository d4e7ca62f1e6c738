import type { RateLimitTables } from '../../schema/index.ts'
import { CLOSING, openedIn } from '../estimates/estimate-row.ts'
import { nameIn } from '../estimates/names.ts'
import { openStatement } from '../estimates/sql/estimates.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import type { Database } from '../kernel/database/database.ts'
import { uncharged } from '../kernel/database/database-error.ts'
import { distinct } from '../kernel/database/rows.ts'
import { runOnce } from '../kernel/database/run.ts'
import { kept, statementsOf } from '../kernel/database/statement.ts'
import { SHIPPED } from '../kernel/database/table-name.ts'
import { checkDatabase, checkRows } from '../kernel/options/checks.ts'
import { checkKey, checkOption } from '../kernel/options/validate.ts'
import { RESERVED_PREFIX } from '../kernel/sql/own-prefixes.ts'
import { stateIn } from '../shared/number-columns.ts'

/** Options of `openReservations`. */
export interface OpenReservationsOptions {
  /** The prefix of the limiter whose reservations are listed. */
  readonly prefix: string
  /** Lists those of one key, as it is stored: with `hashKeys`, the hash. Default: those of all keys. */
  readonly key?: string | undefined
  /** The most reservations to list. Default: `100`. */
  readonly limit?: number
  /** Whether to read the durable table, which holds quotas. Default: `true`. */
  readonly durable?: boolean
  /** Tables of your own, from `rateLimitTables`. Default: the two tables of the package. */
  readonly tables?: RateLimitTables
}

const OPEN_NAMES: NamesOf<OpenReservationsOptions> = {
  prefix: true,
  key: true,
  limit: true,
  durable: true,
  tables: true,
}

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
 * @throws RatelimitError before any SQL `INVALID_PREFIX`, `INVALID_KEY`, `INVALID_OPTION`; then the errors of
 * `Ratelimit.getRemaining`.
 *
 * @example
 * ```ts
 * import { openReservations } from 'drizzle-ratelimit/quota'
 * import { db } from './app.ts'
 *
 * for (const { key, id, rate, expires } of await openReservations(db, { prefix: 'credits' })) {
 *   console.log(key, id, rate, new Date(expires))
 * }
 * ```
 */
export async function openReservations(
  db: Database,
  options: OpenReservationsOptions,
): Promise<OpenReservation[]> {
  checkDatabase(db)
  checkOptions(options, OPEN_NAMES)
  checkRows(options)
  const { prefix, key, limit = 100, durable = true, tables = SHIPPED } = options
  checkOption(Number.isSafeInteger(limit) && limit > 0, 'limit must be a whole number above 0.')
  const isOfKey = key !== undefined
  if (isOfKey) checkKey(key, prefix)
  const table = durable ? tables.durable : tables.ephemeral
  const statement = kept(statementsOf(table), `open ${isOfKey}`, () => openStatement(table, isOfKey))
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
