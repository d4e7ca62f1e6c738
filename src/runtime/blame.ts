import type { RatelimitError } from '../errors.ts'

const LOCK_NOT_AVAILABLE = '55P03'
const QUERY_CANCELED = '57014'

/**
 * How many more statements of a batch may run into a timeout than not. After that, the rest of the batch
 * fails without being sent.
 *
 * Each of them takes as long as the timeout. One slow key makes one half of each level slow and leaves the
 * other fast, so the numbers stay close together, and even two such keys are found. A database that is slow
 * for everybody is asked five times, however many keys there are.
 */
const MAX_SLOW = 4

/** Finds out which keys of a batch are the cause that its statements fail. */
export class Blame {
  readonly #waitsBriefly: boolean
  #slow = 0
  #forAll: RatelimitError | undefined

  /** @param waitsBriefly Whether the statement gives up soon on a row that another transaction is making. */
  constructor(waitsBriefly: boolean) {
    this.#waitsBriefly = waitsBriefly
  }

  /** The error with which the rest of the batch fails without being sent. */
  get forAll(): RatelimitError | undefined {
    return this.#forAll
  }

  /** Who is the cause: one of the keys, one that others hold, or all of them. */
  of(error: RatelimitError): 'one' | 'held' | 'all' {
    const { sqlState = '' } = error
    if (this.#waitsBriefly && sqlState === LOCK_NOT_AVAILABLE) return 'held'
    // A value that this database cannot store, such as one outside its encoding.
    if (sqlState.startsWith('22')) return 'one'
    // A lock_timeout or statement_timeout ended the statement, or somebody cancelled it.
    if (sqlState !== LOCK_NOT_AVAILABLE && sqlState !== QUERY_CANCELED) return 'all'
    if (this.#forAll === undefined && ++this.#slow > MAX_SLOW) this.#forAll = error
    return this.#forAll ? 'all' : 'one'
  }

  /** A statement of the batch was answered. */
  passed(): void {
    if (this.#slow > 0) this.#slow--
  }
}
