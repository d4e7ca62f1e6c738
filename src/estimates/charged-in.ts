import { sql } from 'drizzle-orm'
import type { Database } from '../kernel/database/database.ts'
import { uncharged } from '../kernel/database/database-error.ts'
import { execute } from '../kernel/database/run.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { runOn } from '../kernel/engine/work.ts'
import { RatelimitError } from '../kernel/errors.ts'

// An estimate that was charged in a caller's transaction is there for others when that has committed.

/** Where an estimate was charged. */
export interface ChargedIn {
  readonly db: Database
  /** The id of the caller's transaction. Undefined if it was charged alone. */
  readonly id: string | undefined
}

export async function chargedIn(checker: Checker, tx: Database | undefined): Promise<ChargedIn> {
  const { db, isTransaction } = checker.where(tx)
  return { db, id: isTransaction ? await transactionId(db) : undefined }
}

/**
 * Refuses to settle an estimate that is not there: outside of its transaction while that is open, where the
 * settlement would find nothing, or wait without an end, and after a rollback.
 *
 * @param isNamed Whether a row says if the estimate is there. A rollback of a repeated call changes nothing.
 * @throws RatelimitError `NOT_RESERVED`
 */
export async function checkCharged(
  checker: Checker,
  { db, id }: ChargedIn,
  tx: At,
  isNamed = false,
): Promise<void> {
  if (id === undefined || checker.where(tx).db === db) return
  const status = await transactionStatus(checker, tx, id)
  const isOpen = status === 'in progress'
  if (!isOpen && (status !== 'aborted' || isNamed)) return
  throw new RatelimitError(
    'NOT_RESERVED',
    isOpen
      ? 'The transaction that reserves has not committed yet. Give the settlement its tx, or settle after the commit.'
      : 'The transaction that reserved was rolled back. Nothing is left to settle.',
  )
}

/**
 * The id of a transaction. Other transactions can look up its status by the id. A savepoint has the id of its
 * transaction.
 *
 * @throws RatelimitError for each error of the database or the driver.
 */
export async function transactionId(tx: Database): Promise<string> {
  const [row] = await uncharged(execute(tx, sql`select pg_catalog.pg_current_xact_id()::text as id`))
  return String(row?.['id'])
}

/**
 * What became of the transaction: `'in progress'`, `'aborted'` or `'committed'`. `'here'` if the database is
 * that transaction or a savepoint in it. Undefined if Postgres has forgotten it, or does not know it: the id
 * may come from a server that was replaced.
 *
 * @throws RatelimitError for each error of the database or the driver.
 */
export async function transactionStatus(checker: Checker, at: At, id: string): Promise<string | undefined> {
  const status = sql`select case when id = pg_catalog.pg_current_xact_id_if_assigned() then 'here'
      when id < pg_catalog.pg_current_xact_id() then pg_catalog.pg_xact_status(id) end as status
    from (select ${id}::text::xid8 as id offset 0) as asked`
  const [row] = await runOn(checker, at, 'looks', ({ db }) => execute(db, status))
  const found = row?.['status']
  return typeof found === 'string' ? found : undefined
}
