import { ownError, RatelimitError } from '../errors.ts'

/**
 * The error of a call for a slot, as an error of its own. Errors of the database speak of charges, and a slot
 * is no charge.
 *
 * @param untouched What is true if nothing was done.
 */
export function slotError(error: unknown, untouched: string): unknown {
  if (!(error instanceof RatelimitError)) return error
  return ownError(error, error.message.replace('Nothing was charged', untouched))
}
