import { isOfConnection, wasNeverSent } from '../database/database-error.ts'
import { contendedError, type RatelimitError } from '../errors.ts'

const LOCK_NOT_AVAILABLE = '55P03'
const UNIQUE_VIOLATION = '23505'
const QUERY_CANCELED = '57014'

/**
 * How many more statements of a batch may run into a timeout than succeed. After that, the rest of the batch
 * fails without being sent.
 *
 * Each timeout takes long. With one slow key, one half of each size is slow and the other is fast, so the two
 * numbers stay close, and the search goes on until it finds the key. It even finds two slow keys. If the
 * database is slow for all keys, only five statements are sent.
 */
const MAX_SLOW = 4

/** Decides which keys of a batch are to blame for an error. */
export class Blame {
  readonly #waitsBriefly: boolean
  #slow = 0
  #forAll: RatelimitError | undefined

  /** @param waitsBriefly Whether the statement soon gives up on a row that another transaction is inserting. */
  constructor(waitsBriefly: boolean) {
    this.#waitsBriefly = waitsBriefly
  }

  /** The error with which the rest of the batch fails without being sent. */
  get forAll(): RatelimitError | undefined {
    return this.#forAll
  }

  /** The cause of the error: one of the keys, a key that others hold, or all of them. */
  of(error: RatelimitError): 'one' | 'held' | 'all' {
    const { code, sqlState = '' } = error
    // Another transaction is inserting one of the rows, or was faster.
    if (this.#waitsBriefly && [LOCK_NOT_AVAILABLE, UNIQUE_VIOLATION].includes(sqlState)) return 'held'
    // The database cannot store a value, such as one outside its encoding.
    if (sqlState.startsWith('22')) return 'one'
    // Not a lock_timeout, a statement_timeout or a cancel.
    const isOfAll = sqlState !== LOCK_NOT_AVAILABLE && sqlState !== QUERY_CANCELED
    // A ledger may have refused the entry of one key.
    if (isOfAll && code !== 'ENTRIES_FAILED') return 'all'
    if (this.#forAll === undefined && ++this.#slow > MAX_SLOW) this.#forAll = error
    return this.#forAll ? 'all' : 'one'
  }

  succeeded(): void {
    if (this.#slow > 0) this.#slow--
  }
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
