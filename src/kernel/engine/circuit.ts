import { RatelimitError } from '../errors.ts'

/** After this many failures in a row, calls are answered without the database. */
const MAX_FAILURES = 5

/** A trial without an answer after this time may never get one, so another call tries too. */
const TRIAL_MS = 1_000

/**
 * A circuit breaker: it counts the failures in a row of a database that may be unreachable.
 *
 * After some failures, one call at a time tries the database, and the others are answered at once. The first
 * answer of the database ends the outage.
 */
export class Circuit {
  #failures = 0
  #triedAt = Number.NEGATIVE_INFINITY
  #last: RatelimitError | undefined
  /** The statements whose failures were counted. */
  #counted = new WeakSet<object>()

  /** How many calls `onError` has answered in this process. Undefined for none. */
  declare degraded: number | undefined

  /** Whether calls fail at once, because the database did not answer. */
  get isOpen(): boolean {
    return this.#failures >= MAX_FAILURES
  }

  /** The error with which a call fails at once. Undefined if the call may try the database. */
  refusal(): RatelimitError | undefined {
    if (!this.isOpen) return undefined
    const now = performance.now()
    if (now - this.#triedAt < TRIAL_MS) return refusal(this.#last)
    this.#triedAt = now
    return undefined
  }

  /** Notes that the database has answered. */
  answered(): void {
    if (this.#failures === 0) return
    this.#failures = 0
    this.#last = undefined
    this.#counted = new WeakSet()
  }

  /** Notes the error of a statement. If the database has refused it, the database can be reached. */
  learn(error: RatelimitError, statement: object = error): void {
    if (isFailure(error)) this.failed(error, statement)
    else if (error.sqlState !== undefined) this.answered()
  }

  /** Counts the failure of a statement once, although its calls may fail at different times. */
  failed(error: RatelimitError, statement: object = error): void {
    if (this.#counted.has(statement)) return
    this.#counted.add(statement)
    this.#last = error
    this.#failures++
    this.#triedAt = Number.NEGATIVE_INFINITY
  }
}

/** Whether the database may be unreachable after this error. */
function isFailure({ code, contended }: RatelimitError): boolean {
  return !contended && (code === 'UNREACHABLE' || code === 'OUTCOME_UNKNOWN' || code === 'TIMEOUT')
}

function refusal(cause: RatelimitError | undefined): RatelimitError {
  return new RatelimitError(
    'UNREACHABLE',
    `The database has failed ${MAX_FAILURES} times in a row, and another call is trying it. This call was not sent.`,
    { cause },
  )
}
