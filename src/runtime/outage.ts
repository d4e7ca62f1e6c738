import { RatelimitError } from '../errors.ts'

/** So many failures in a row must come before calls are answered without the database. */
const MAX_FAILURES = 5

/** A trial that has no answer by then may never get one, so another call tries too. */
const TRIAL_MS = 1_000

/**
 * Failures in a row of a database that may be away: a circuit breaker.
 *
 * After some failures one call at a time tries the database, and the others are answered at once. The limiter
 * makes an outage with the first failure, and forgets it with the first answer.
 */
export class Outage {
  #failures = 0
  #triedAt = Number.NEGATIVE_INFINITY
  #last: RatelimitError | undefined
  /** What has failed already. */
  readonly #counted = new WeakSet<object>()

  /** Whether the error says that the database may be away. */
  static isOne({ code, contended }: RatelimitError): boolean {
    return !contended && (code === 'UNREACHABLE' || code === 'OUTCOME_UNKNOWN' || code === 'TIMEOUT')
  }

  /** The error to fail with at once; undefined if the call may ask the database. */
  refusal(): RatelimitError | undefined {
    if (this.#failures < MAX_FAILURES) return undefined
    const now = performance.now()
    if (now - this.#triedAt < TRIAL_MS) return refusal(this.#last)
    this.#triedAt = now
    return undefined
  }

  /** Counts the failure of a statement, once: its calls may fail at different times. */
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
