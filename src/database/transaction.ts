import { RatelimitError } from '../errors.ts'
import { type Connection, connectionTo } from './connection.ts'
import { toRatelimitError } from './database-error.ts'

/**
 * Runs work in a transaction, or in a savepoint of the present one. If the work throws something that is no
 * error, the transaction is rolled back, and the same is thrown.
 *
 * @throws RatelimitError for each error of the database or the driver; `INVALID_OPTION` if the driver has no
 * transactions.
 */
export async function inTransaction<T>(
  { db, keeping }: Connection,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  let hasBegun = false
  try {
    return await db.transaction(
      (tx) => {
        hasBegun = true
        return work(connectionTo(tx, keeping))
      },
      { isolationLevel: 'read committed' },
    )
  } catch (reason) {
    if (!(reason instanceof Error) || reason instanceof RatelimitError) throw reason
    throw hasBegun ? toRatelimitError(reason) : notBegun(reason)
  }
}

/** Thrown to roll work back that has done nothing. */
class Undone<T> {
  readonly found: T

  constructor(found: T) {
    this.found = found
  }
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
      if (!isDone(found)) throw new Undone(found)
      return found
    })
  } catch (reason) {
    if (reason instanceof Undone) return reason.found
    throw reason
  }
}

/** What Drizzle's drivers without interactive transactions throw. */
const NO_TRANSACTIONS = /^(No transactions support|Transactions are not supported)/

/** The error of a transaction that could not begin. Nothing was charged. */
function notBegun(cause: Error): RatelimitError {
  if (NO_TRANSACTIONS.test(cause.message)) {
    const message =
      'This call needs a driver with interactive transactions, and this driver has none. The calls that need one ' +
      'are those with onEntries, settlements with grace, costs above an estimate with a name, and with ' +
      'distributed: true new keys and rows on several shards.'
    return new RatelimitError('INVALID_OPTION', message, { cause })
  }
  const error = toRatelimitError(cause)
  if (error.code !== 'OUTCOME_UNKNOWN') return error
  const { sqlState } = error
  const message = 'The transaction could not begin. Nothing was charged.'
  return new RatelimitError('UNREACHABLE', message, { cause: error.cause, sqlState })
}
