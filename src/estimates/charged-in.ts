import type { Database } from '../kernel/database/database.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { transactionId, transactionStatus } from './transaction-status.ts'

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
  if (status === 'in progress') {
    throw new RatelimitError(
      'NOT_RESERVED',
      'The transaction that reserves has not committed yet. Give the settlement its tx, or settle after the commit.',
    )
  }
  if (status === 'aborted' && !isNamed) {
    throw new RatelimitError(
      'NOT_RESERVED',
      'The transaction that reserved was rolled back. Nothing is left to settle.',
    )
  }
}
