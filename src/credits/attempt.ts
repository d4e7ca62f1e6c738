import type { Checker } from '../check/checker.ts'
import type { Database } from '../database/database.ts'
import { inTransactionIf } from '../database/transaction.ts'

/**
 * Sends a list that may have to be sent again with other rows. In a caller's transaction it runs in a
 * savepoint, so that an attempt that has charged nothing keeps no lock, and the next one locks in the order of
 * every list.
 */
export async function attempt<T>(
  checker: Checker,
  tx: Database | undefined,
  work: (tx: Database | undefined) => Promise<T>,
  isDone: (found: T) => boolean,
): Promise<T> {
  const joined = checker.joined(tx)
  return joined ? inTransactionIf(joined, ({ db }) => work(db), isDone) : work(tx)
}
