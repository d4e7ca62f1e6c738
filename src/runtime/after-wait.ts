import { contendedError, type RatelimitError } from '../errors.ts'

/** A wait for a row ends by lock_timeout, by statement_timeout or a cancel, or by transaction_timeout. */
const ENDS_WAIT: ReadonlySet<string> = new Set(['55P03', '57014', '25P04'])

/** The error of a statement that may have waited for a row. It is `contended` if the wait was ended. */
export function afterWait(error: RatelimitError): RatelimitError {
  const { code, sqlState } = error
  // The server did not answer, so the driver may have given up, as node-postgres does after query_timeout.
  const endsWait = sqlState === undefined ? code === 'OUTCOME_UNKNOWN' : ENDS_WAIT.has(sqlState)
  return endsWait ? contendedError(error) : error
}
