import type { RateLimitTable } from '../../schema/index.ts'
import { distinct } from '../kernel/database/rows.ts'
import { RESERVED_PREFIX } from '../kernel/sql/own-prefixes.ts'
import { stateIn } from '../shared/number-columns.ts'
import { type Reading, readRows } from '../shared/read-rows.ts'
import { CLOSING, openedIn } from './estimate-row.ts'
import { nameIn } from './names.ts'
import { openStatement } from './sql/estimates.ts'

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

/** Reads the open reservations of a key, or of all keys, those that end first before the others. */
export async function readOpen(
  reading: Omit<Reading, 'clock'>,
  { key, size }: { readonly key?: string | undefined; readonly size: number },
): Promise<OpenReservation[]> {
  const isOfKey = key !== undefined
  const build = (table: RateLimitTable) => openStatement(table, isOfKey)
  const values = { prefix: RESERVED_PREFIX + reading.prefix, size, from: `${key}/`, to: `${key}/z` }
  const rows = distinct(await readRows(reading, `open ${isOfKey}`, build, values), 'key', size)
  return rows.flatMap((row) => {
    const opened = openedIn(stateIn(row, CLOSING))
    return opened ? [{ ...nameIn(String(row['key'])), rate: opened.rate, expires: opened.endMs }] : []
  })
}
