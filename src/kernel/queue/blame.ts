import { withdrawn } from '../database/connection.ts'
import { isOfConnection, wasNeverSent } from '../database/database-error.ts'
import { contendedError, type RatelimitError } from '../errors.ts'
import type { Pending, Queued } from './queue.ts'

const LOCK_NOT_AVAILABLE = '55P03'
const UNIQUE_VIOLATION = '23505'
const QUERY_CANCELED = '57014'

/**
 * The cause of the error of a statement for many keys: one of the keys, a key that others hold, something slow,
 * which one of the keys may be, or all of the keys.
 *
 * @param waitsBriefly Whether the statement soon gives up on a row that another transaction is inserting.
 */
export function causeOf(
  { code, sqlState = '' }: RatelimitError,
  waitsBriefly: boolean,
): 'one' | 'held' | 'slow' | 'all' {
  // Another transaction is inserting one of the rows, or was faster.
  if (waitsBriefly && [LOCK_NOT_AVAILABLE, UNIQUE_VIOLATION].includes(sqlState)) return 'held'
  // The database cannot store a value, such as one outside its encoding.
  if (sqlState.startsWith('22')) return 'one'
  // A lock_timeout, a statement_timeout or a cancel.
  if (sqlState === LOCK_NOT_AVAILABLE || sqlState === QUERY_CANCELED) return 'slow'
  // A ledger may have refused the entry of one key.
  return code === 'ENTRIES_FAILED' ? 'slow' : 'all'
}

/** A wait for a row ends by lock_timeout, by statement_timeout or a cancel, or by transaction_timeout. */
const ENDS_WAIT: ReadonlySet<string> = new Set([LOCK_NOT_AVAILABLE, QUERY_CANCELED, '25P04'])

/**
 * The error of a statement that may have waited for a row. It is `contended` if the wait was ended.
 *
 * @param isHeld Whether others held the row before. Then no answer means that the driver has given up the wait,
 * as node-postgres does after query_timeout. Otherwise the network may be silent.
 */
export function afterWait(error: RatelimitError, isHeld: boolean): RatelimitError {
  const { sqlState } = error
  const hasGivenUp = isHeld && isOfConnection(error) && !wasNeverSent(error)
  const endsWait = sqlState === undefined ? hasGivenUp : ENDS_WAIT.has(sqlState)
  return endsWait ? contendedError(error) : error
}

/**
 * Tells a call that others hold its row. If its caller has given up, the call ends: it was sent, and has
 * charged nothing. Returns whether it goes on.
 */
export function holdIfWanted<R extends Queued, D>(call: Pending<R, D>): boolean {
  call.hold()
  if (call.isOver) call.fail(contendedError(withdrawn()))
  return !call.isOver
}
