import { RatelimitError } from '../errors.ts'

/** Work that is done once. It may be tried again after an error that says that nothing was charged. */
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
      this.#isOpen = !(error instanceof RatelimitError && error.code === 'OUTCOME_UNKNOWN')
      throw error
    }
  }
}
