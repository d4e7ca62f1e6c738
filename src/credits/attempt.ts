import type { Checker } from '../check/checker.ts'
import type { Database } from '../database/database.ts'
import { inTransaction } from '../database/transaction.ts'

/** Thrown to undo an attempt that has charged nothing. */
class Undone<T> {
  readonly found: T

  constructor(found: T) {
    this.found = found
  }
}

/**
 * Sends a list that may have to be sent again with other rows. In a caller's transaction it runs in a
 * savepoint. So an attempt that has charged nothing keeps no lock, and the next one locks in the order of every
 * list.
 */
export async function attempt<T>(
  checker: Checker,
  tx: Database | undefined,
  work: (tx: Database | undefined) => Promise<T>,
  isDone: (found: T) => boolean,
): Promise<T> {
  const joined = checker.joined(tx)
  if (!joined) return work(tx)
  try {
    return await inTransaction(joined, async ({ db }) => {
      const found = await work(db)
      if (!isDone(found)) throw new Undone(found)
      return found
    })
  } catch (reason) {
    if (reason instanceof Undone) return reason.found
    throw reason
  }
}
