import { RatelimitError } from '../kernel/errors.ts'

/** Whether the charge may have been made in spite of the error. docs/guarantees.md lists this for each code. */
export function mayHaveCharged(error: unknown): boolean {
  if (!(error instanceof RatelimitError)) return true
  const { code, sqlState } = error
  // With an SQLSTATE, Postgres refused the statement. Without one, the driver may have failed to read the
  // answer.
  return code === 'OUTCOME_UNKNOWN' || (code === 'DATABASE' && sqlState === undefined)
}
