import type { Connection } from '../kernel/database/connection.ts'
import { inTransaction } from '../kernel/database/transaction.ts'
import type { At } from '../kernel/engine/bounds.ts'

/** Thrown to roll work back that has done nothing. */
class RolledBack<T> {
  readonly found: T

  constructor(found: T) {
    this.found = found
  }
}

/** Runs work, in a savepoint if it joins a transaction, and rolls that back unless the work `isDone`. */
export function inSavepointIf<T>(
  joined: Connection | undefined,
  at: At,
  work: (at: At) => Promise<T>,
  isDone: (found: T) => boolean,
): Promise<T> {
  return joined ? inTransactionIf(joined, ({ db }) => work(db), isDone) : work(at)
}

/** Runs work as {@link inTransaction} does, and rolls it back unless it `isDone`, so that it keeps no lock. */
export async function inTransactionIf<T>(
  connection: Connection,
  work: (connection: Connection) => Promise<T>,
  isDone: (found: T) => boolean,
): Promise<T> {
  try {
    return await inTransaction(connection, async (own) => {
      const found = await work(own)
      if (!isDone(found)) throw new RolledBack(found)
      return found
    })
  } catch (reason) {
    if (reason instanceof RolledBack) return reason.found
    throw reason
  }
}
