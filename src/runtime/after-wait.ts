import { contendedError, type RatelimitError } from '../errors.ts'

/** What ends a wait for a row: lock_timeout, statement_timeout or a cancel, and transaction_timeout. */
const ENDS_WAIT: ReadonlySet<string> = new Set(['55P03', '57014', '25P04'])

/** The error of a statement that may have waited for a row, contended if it was the wait that ended. */
export function afterWait(error: RatelimitError): RatelimitError {
  const { code, sqlState } = error
  // Without a word of the server, the driver may have given up the wait: query_timeout of node-postgres.
  const endsWait = sqlState === undefined ? code === 'OUTCOME_UNKNOWN' : ENDS_WAIT.has(sqlState)
  return endsWait ? contendedError(error) : error
}
