import { sql } from 'drizzle-orm'
import { type Connection, ours } from '../kernel/database/connection.ts'
import type { Database } from '../kernel/database/database.ts'
import { toRatelimitError } from '../kernel/database/database-error.ts'
import { isTransient } from '../kernel/database/retry.ts'
import { execute } from '../kernel/database/run.ts'
import { inTransaction } from '../kernel/database/transaction.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { Entry, RecordedStatement, WriteEntries } from '../kernel/store/entry.ts'

/**
 * Runs a statement and hands out its entries in the same transaction: one of its own, or a savepoint of the
 * caller's. If that fails, both are rolled back.
 *
 * @throws RatelimitError `ENTRIES_FAILED`, and each error of the database or the driver.
 */
export function record<T>({ connection, isBrief, run, recordedBy }: RecordedStatement<T>): Promise<T> {
  const within = connection.isTransaction ? inSavepoint : inTransaction
  return within(connection, async (own) => {
    const result = await run(own)
    const recorded = recordedBy(result)
    if (recorded.length === 0) return result
    // The statement has set it for the transaction, which goes on.
    if (isBrief && !connection.isTransaction) await execute(own.db, sql`set local lock_timeout to default`)
    for (const write of new Set(recorded.map((each) => each.write))) {
      const entries = recorded.filter((each) => each.write === write).map(({ entry }) => entry)
      await handOut(write, own.db, entries)
    }
    return result
  })
}

/** By SQL, so that the caller's own `tx` is handed out, and because Kysely has no nested transactions. */
async function inSavepoint<T>(connection: Connection, work: (own: Connection) => Promise<T>): Promise<T> {
  const { db } = connection
  await execute(db, sql`savepoint ratelimit_entries`)
  try {
    const result = await work(connection)
    await execute(db, sql`release savepoint ratelimit_entries`)
    return result
  } catch (error) {
    // If this fails, the transaction is lost, and the first error says why.
    await execute(db, sql`rollback to savepoint ratelimit_entries`).catch(() => {})
    throw error
  }
}

async function handOut(write: WriteEntries, tx: Database, entries: readonly Entry[]): Promise<void> {
  // The function may call limiters in it, and gives their errors another meaning.
  ours.delete(tx)
  try {
    await write(tx, entries)
    // If the function has hidden the error of a statement, the commit would roll back and say nothing.
    await execute(tx, sql`select 1`)
  } catch (cause) {
    const error = toRatelimitError(cause)
    // It lost against another transaction, so another try may succeed.
    if (isTransient(error)) throw error
    const message = 'The function given to ledger has failed; see cause. Nothing was charged.'
    throw new RatelimitError('ENTRIES_FAILED', message, { cause })
  }
}
