import { RatelimitError } from '../errors.ts'
import { type Connection, connectionTo, newSending, ours, withdrawn } from './connection.ts'
import { type Database, sessionOf } from './database.ts'
import {
  databaseError,
  isOfConnection,
  isOutdated,
  isRefusal,
  neverSent,
  nothingCharged,
  toRatelimitError,
} from './database-error.ts'
import { onOwnClient } from './own-client.ts'

/**
 * Runs work in a transaction, or in a savepoint of the present one. A transaction runs again if a kept
 * statement is refused or outdated. If the work throws something that is no error, the transaction is rolled
 * back, and the same is thrown.
 *
 * @throws RatelimitError for each error of the database or the driver: `OUTCOME_UNKNOWN` only if the commit may
 * have been sent; `INVALID_OPTION` if the driver has no transactions.
 */
export async function inTransaction<T>(
  connection: Connection,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  try {
    return await inOneTransaction(connection, work)
  } catch (error) {
    const isRefused = error instanceof RatelimitError && (isRefusal(error) || isOutdated(error))
    if (!isRefused || connection.isTransaction) throw error
    return inOneTransaction(connection, work)
  }
}

async function inOneTransaction<T>(
  connection: Connection,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const { db, keeping, isTransaction: isJoined, sending = newSending() } = connection
  // At `commit`, the commit may have been sent.
  let stage = 'begin' as 'begin' | 'work' | 'commit'
  let failure: { readonly reason: unknown } | undefined
  const joined = async (tx: Database) => {
    stage = 'work'
    try {
      if (!isJoined || ours.has(db)) ours.add(tx)
      const result = await work(connectionTo(tx, keeping))
      if (sending.isWithdrawn) throw withdrawn()
      stage = 'commit'
      sending.isSent = true
      return result
    } catch (reason) {
      failure = { reason }
      throw reason
    }
  }
  if (sending.isWithdrawn) throw withdrawn()
  // What a transaction does is charged when it commits.
  sending.isSent = false
  try {
    return await onOwnClient(db, (own) => own.transaction(joined, { isolationLevel: 'read committed' }))
  } catch (last) {
    // If the rollback fails too, Drizzle 0.45 throws the error of the rollback.
    const reason = failure ? failure.reason : last
    if (failure && !(reason instanceof Error)) throw reason
    if (stage === 'begin') throw notBegun(db, reason)
    const error = toRatelimitError(reason)
    // What becomes of a savepoint is decided by the transaction around it.
    if (isJoined) throw error
    throw stage === 'work' ? nothingCharged(error) : ofCommit(error)
  }
}

/** Drizzle's sessions on drivers without interactive transactions. */
const WITHOUT_TRANSACTIONS = ['NeonHttpSession', 'PgRemoteSession', 'PrismaPgSession', 'XataHttpSession']

/** The error of a transaction that could not begin. Nothing was charged. */
function notBegun(db: Database, cause: unknown): RatelimitError {
  if (sessionOf(db, WITHOUT_TRANSACTIONS)) {
    const message =
      'This call needs a driver with interactive transactions, and this driver has none. So do a ledger, ' +
      'new members, schedule with once, late settlements with grace, and with citus() new keys, ' +
      'rows on several shards, and resets of buckets with initialTokens.'
    return new RatelimitError('INVALID_OPTION', message, { cause })
  }
  return neverSent(toRatelimitError(cause))
}

/** The error of a commit. Only Postgres can say that it has not committed, and only while the session lasts. */
function ofCommit(error: RatelimitError): RatelimitError {
  const isRefused = !isOfConnection(error) && !error.sqlState?.startsWith('57P')
  return isRefused ? error : databaseError('OUTCOME_UNKNOWN', error)
}
