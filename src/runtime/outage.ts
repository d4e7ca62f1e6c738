import { RatelimitError } from '../errors.ts'

/** After this many failures in a row, calls are answered without the database. */
const MAX_FAILURES = 5

/** A trial without an answer after this time may never get one, so another call tries too. */
const TRIAL_MS = 1_000

/**
 * A circuit breaker: it counts the failures in a row of a database that may be unreachable.
 *
 * After some failures, one call at a time tries the database, and the others are answered at once. The limiter
 * creates an outage at the first failure and drops it at the first answer.
 */
export class Outage {
  #failures = 0
  #triedAt = Number.NEGATIVE_INFINITY
  #last: RatelimitError | undefined
  /** The statements whose failures were counted. */
  readonly #counted = new WeakSet<object>()

  /** Whether the database may be unreachable after this error. */
  static isOne({ code, contended }: RatelimitError): boolean {
    return !contended && (code === 'UNREACHABLE' || code === 'OUTCOME_UNKNOWN' || code === 'TIMEOUT')
  }

  /** The error with which a call fails at once. Undefined if the call may try the database. */
  refusal(): RatelimitError | undefined {
    if (this.#failures < MAX_FAILURES) return undefined
    const now = performance.now()
    if (now - this.#triedAt < TRIAL_MS) return refusal(this.#last)
    this.#triedAt = now
    return undefined
  }

  /** Counts the failure of a statement once, although its calls may fail at different times. */
  add(error: RatelimitError, statement: object): void {
    if (this.#counted.has(statement)) return
    this.#counted.add(statement)
    this.#last = error
    this.#failures++
    this.#triedAt = Number.NEGATIVE_INFINITY
  }
}

function refusal(cause: RatelimitError | undefined): RatelimitError {
  return new RatelimitError(
    'UNREACHABLE',
    `The database has failed ${MAX_FAILURES} times in a row, and another call is trying it. This one was not sent.`,
    { cause },
  )
}
