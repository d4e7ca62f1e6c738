import { RatelimitError } from '../errors.ts'

/** Work that is done once. It may be tried again after an error that says that nothing was charged. */
export class Once {
  #isDone: boolean

  constructor(isDone = false) {
    this.#isDone = isDone
  }

  /** Whether it is done, under way, or may have been done. */
  get isDone(): boolean {
    return this.#isDone
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    this.#isDone = true
    try {
      return await work()
    } catch (error) {
      this.#isDone = error instanceof RatelimitError && error.code === 'OUTCOME_UNKNOWN'
      throw error
    }
  }
}
