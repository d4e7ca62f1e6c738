import { ownError } from '../errors.ts'

/** The answer to one call. Calls that share a statement share its error, and each gets one of its own. */
export async function own<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer
  } catch (error) {
    throw ownError(error)
  }
}
