import { RatelimitError } from '../errors.ts'

/** Work that is done once. It may be tried again only after an error that says that nothing was charged. */
export class Once {
  #isOpen = true

  /** @throws RatelimitError `ALREADY_SETTLED` if the work was done, is under way, or may have been done. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (!this.#isOpen) {
      throw new RatelimitError('ALREADY_SETTLED', 'This was committed or released before, or may have been.')
    }
    this.#isOpen = false
    try {
      return await work()
    } catch (error) {
      this.#isOpen = !mayHaveCharged(error)
      throw error
    }
  }
}

/** Whether the error leaves open that the charge was made. docs/guarantees.md says the same of each code. */
function mayHaveCharged(error: unknown): boolean {
  if (!(error instanceof RatelimitError)) return true
  const { code, sqlState } = error
  // With a state, Postgres refused the statement. Without one, its answer may not have been readable.
  return code === 'OUTCOME_UNKNOWN' || (code === 'DATABASE' && sqlState === undefined)
}
