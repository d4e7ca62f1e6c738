/** What went wrong, as a value to branch on. docs/errors.md says what to do about each. */
export type RatelimitErrorCode =
  | 'INVALID_KEY'
  | 'INVALID_PREFIX'
  | 'INVALID_RATE'
  | 'INVALID_LIMIT'
  | 'INVALID_DURATION'
  | 'INVALID_OPTION'
  | 'INVALID_CLOCK'
  | 'MISSING_TABLE'
  | 'CONTENTION'
  | 'OVERLOADED'
  | 'TIMEOUT'
  | 'ALREADY_SETTLED'
  | 'COUNT_OVERFLOW'
  | 'OTHER_PLAN'
  | 'SERIALIZATION_FAILURE'
  | 'DEADLOCK'
  | 'TRANSACTION_ABORTED'
  | 'UNREACHABLE'
  | 'OUTCOME_UNKNOWN'
  | 'DATABASE'

/** What {@link RatelimitError} knows besides its code and message. */
export interface RatelimitErrorDetails {
  /** The error underneath, usually the driver's. */
  readonly cause?: unknown
  /** The five characters of Postgres' SQLSTATE, if Postgres sent one. */
  readonly sqlState?: string | undefined
  /** Whether the call waited for its own key, or was turned away because of it. Default: `false`. */
  readonly contended?: boolean | undefined
}

/** The same in every copy of the package, such as its ES and its CommonJS modules. */
const IS_RATELIMIT_ERROR = Symbol.for('drizzle-ratelimit.RatelimitError')

/**
 * The only error this package throws; a denial is not an error but an answer.
 *
 * Its message never holds a key or another parameter. The `cause` is the driver's own error and may.
 *
 * @example
 * ```ts
 * import { Ratelimit, RatelimitError } from 'drizzle-ratelimit'
 *
 * declare const api: Ratelimit
 * try {
 *   await api.limit('user:123')
 * } catch (error) {
 *   if (error instanceof RatelimitError && error.code === 'MISSING_TABLE') console.error(error.message)
 *   throw error
 * }
 * ```
 */
export class RatelimitError extends Error {
  /** Tells it from other errors in logs. */
  override readonly name = 'RatelimitError'
  /** Stable across releases; the message is not. */
  readonly code: RatelimitErrorCode
  /** The five characters of Postgres' SQLSTATE, if Postgres sent one. */
  readonly sqlState: string | undefined
  /**
   * Whether the call waited for its own key, or was turned away because of it: for a row that others hold, or
   * beside the key's other calls. This says nothing about the database. A caller can bring it about, so do not
   * let the call pass.
   */
  readonly contended: boolean

  constructor(code: RatelimitErrorCode, message: string, details: RatelimitErrorDetails = {}) {
    super(message, 'cause' in details ? { cause: details.cause } : undefined)
    this.code = code
    this.sqlState = details.sqlState
    this.contended = details.contended ?? false
    Object.defineProperty(this, IS_RATELIMIT_ERROR, { value: true })
  }

  /** An error of another copy of this package is an instance too. */
  static override [Symbol.hasInstance](error: unknown): error is RatelimitError {
    return typeof error === 'object' && error !== null && IS_RATELIMIT_ERROR in error
  }
}

/**
 * The same error for one call. Calls that share a statement share its error, whose stack leads to none of
 * them. One that is made where the call awaits has the call's own stack.
 */
export function ownError(error: unknown): unknown {
  return error instanceof RatelimitError ? copyOf(error, error.contended) : error
}

/** The same error of a call that waited for its own key. */
export function contendedError(error: RatelimitError): RatelimitError {
  return copyOf(error, true)
}

function copyOf({ code, message, cause, sqlState }: RatelimitError, contended: boolean): RatelimitError {
  return new RatelimitError(code, message, { ...(cause === undefined ? {} : { cause }), sqlState, contended })
}
