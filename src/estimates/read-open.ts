import type { RateLimitTable } from '../../schema/index.ts'
import type { Connection } from '../kernel/database/connection.ts'
import type { Database } from '../kernel/database/database.ts'
import { distinct } from '../kernel/database/rows.ts'
import { type Row, runOnce } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { RESERVED_PREFIX } from '../kernel/sql/own-prefixes.ts'
import type { Table } from '../kernel/store/store.ts'
import { stateIn } from '../shared/number-columns.ts'
import { type Reading, readRows } from '../shared/read-rows.ts'
import { inTransactionIf } from '../shared/transaction-if.ts'
import { CLOSING, type Opened, openedIn } from './estimate-row.ts'
import { nameIn } from './names.ts'
import { expiredEstimatesStatement, openStatement } from './sql/estimates.ts'

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

/** An open estimate, and its row. */
export interface OpenEstimate extends Pick<OpenReservation, 'key' | 'id'> {
  readonly row: string
  readonly opened: Opened
}

/** Reads the open reservations of a key, or of all keys, those that end first before the others. */
export async function readOpen(
  reading: Omit<Reading, 'clock'>,
  { key, size }: { readonly key?: string | undefined; readonly size: number },
): Promise<OpenReservation[]> {
  const isOfKey = key !== undefined
  const build = (table: RateLimitTable) => openStatement(table, isOfKey)
  const values = { prefix: RESERVED_PREFIX + reading.prefix, size, from: `${key}/`, to: `${key}/z` }
  const rows = await readRows(reading, `open ${isOfKey}`, build, values)
  return openIn(rows, size).map(({ key, id, opened }) => ({
    key,
    id,
    rate: opened.rate,
    expires: opened.endMs,
  }))
}

/**
 * Finds estimates whose end has come and that no other transaction has locked, and leaves them unlocked: a
 * settlement locks the row of the limit first, and would otherwise wait for this transaction while this one
 * waits for the limit.
 */
export async function findExpired(
  connection: Connection,
  { rows: { table, namespace } }: Checker,
  size: number,
): Promise<OpenEstimate[]> {
  const clock = namespace.clock?.() ?? null
  const values = { prefix: RESERVED_PREFIX + namespace.prefix, clock, size }
  const find = ({ db }: Connection) => lockExpired(table, db, values)
  return openIn(await inTransactionIf(connection, find, () => false), size)
}

/** A store of several servers locks rows of one shard at a time, so there it finds them first. */
async function lockExpired(
  { table, statements, store: { steps } }: Table,
  db: Database,
  values: { readonly prefix: string; readonly clock: number | null; readonly size: number },
): Promise<readonly Row[]> {
  const statement = kept(statements, 'expired', () => expiredEstimatesStatement(table, !steps))
  const found = await runOnce({ db }, statement, values)
  if (!steps) return found
  const keys = found.map((row) => String(row['key']))
  const free = await steps.lockFree(db, values.prefix, keys)
  return found.filter((row) => free.has(String(row['key'])))
}

function openIn(rows: readonly Row[], size: number): OpenEstimate[] {
  return distinct(rows, 'key', size).flatMap((found) => {
    const row = String(found['key'])
    const opened = openedIn(stateIn(found, CLOSING))
    return opened ? [{ ...nameIn(row), row, opened }] : []
  })
}
