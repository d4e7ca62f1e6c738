/** Lets work wait until a condition holds. It is checked after each change. */
export class Changes {
  #waiting: (() => void)[] = []

  /** Something has changed. */
  notify(): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  async until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve)
      })
    }
  }
}
