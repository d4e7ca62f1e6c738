/** The kind of error, as a value to branch on. docs/errors.md has a section for each. */
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
  | 'NOT_RESERVED'
  | 'LEASE_ENDED'
  | 'COUNT_OVERFLOW'
  | 'OTHER_PLAN'
  | 'OTHER_RESERVATION'
  | 'ENTRIES_FAILED'
  | 'SERIALIZATION_FAILURE'
  | 'DEADLOCK'
  | 'TRANSACTION_ABORTED'
  | 'UNREACHABLE'
  | 'OUTCOME_UNKNOWN'
  | 'DATABASE'

/** The fields of a {@link RatelimitError}, in addition to its code and message. */
export interface RatelimitErrorDetails {
  /** The original error, usually the driver's. */
  readonly cause?: unknown
  /** The five characters of Postgres' SQLSTATE, if Postgres sent one. */
  readonly sqlState?: string | undefined
  /** Whether the call waited for its own key, or was refused because of it. Default: `false`. */
  readonly contended?: boolean | undefined
}

/** The same symbol in every copy of the package, such as its ES and its CommonJS modules. */
const IS_RATELIMIT_ERROR = Symbol.for('drizzle-ratelimit.RatelimitError')

/**
 * The only error that this package throws. A denial is an answer and not an error.
 *
 * Its message never contains a key or another parameter. The `cause` is the driver's error, and may contain
 * them.
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
  /** The name in logs. */
  override readonly name = 'RatelimitError'
  /** The kind of error. It is stable across releases; the message is not. */
  readonly code: RatelimitErrorCode
  /** The five characters of Postgres' SQLSTATE, if Postgres sent one. */
  readonly sqlState: string | undefined
  /**
   * Whether the call waited for its own key or was refused because of it: others hold the row, or too many
   * calls of the key wait. It says nothing about the database. A client can cause it, so do not let the call
   * pass.
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
 * A copy of the error with the stack of one call. Calls that share a statement share its error, whose stack
 * leads to none of them.
 */
export function ownError(error: unknown): unknown {
  return error instanceof RatelimitError ? copyOf(error, error.contended) : error
}

/** A copy of the error, for a call that waited for its own key. */
export function contendedError(error: RatelimitError): RatelimitError {
  return copyOf(error, true)
}

function copyOf({ code, cause, sqlState, message }: RatelimitError, contended: boolean): RatelimitError {
  return new RatelimitError(code, message, { ...(cause === undefined ? {} : { cause }), sqlState, contended })
}

/**
 * The answer to one call. Calls that share a statement share its error, and each gets one of its own.
 *
 * @param signal Ends the call. Its reason is the caller's, and stays the same object.
 */
export async function own<T>(answer: Promise<T>, signal?: AbortSignal | undefined): Promise<T> {
  try {
    return await answer
  } catch (error) {
    throw signal?.aborted && error === signal.reason ? error : ownError(error)
  }
}

/** Runs what somebody else has written. Its errors must not change an answer or end the process. */
export async function quietly(work: () => unknown): Promise<void> {
  try {
    await work()
  } catch {}
}
