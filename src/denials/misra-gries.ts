/**
 * Counts the most frequent texts in bounded space, by the algorithm of Misra and Gries.
 *
 * A count is never too high. It is too low by at most the sum of all that was added, divided by `most + 1`. If
 * there were at most `most` different texts, every count is exact.
 * https://en.wikipedia.org/wiki/Misra%E2%80%93Gries_summary
 */
export class MisraGries {
  readonly #most: number
  #counts = new Map<string, number>()

  /** @param most The most texts that it keeps at a time. */
  constructor(most: number) {
    this.#most = most
  }

  /** How many texts have a count. */
  get size(): number {
    return this.#counts.size
  }

  add(text: string, times = 1): void {
    const count = this.#counts.get(text)
    if (count !== undefined || this.#counts.size < this.#most) {
      this.#counts.set(text, (count ?? 0) + times)
      return
    }
    // The new text and each of the others lose the same, so a text loses at most its share of all.
    const lost = Math.min(times, ...this.#counts.values())
    for (const [other, had] of this.#counts) {
      if (had === lost) this.#counts.delete(other)
      else this.#counts.set(other, had - lost)
    }
    if (times > lost) this.#counts.set(text, times - lost)
  }

  /** Returns all counts and begins again at 0. */
  takeAll(): ReadonlyMap<string, number> {
    const taken = this.#counts
    this.#counts = new Map()
    return taken
  }
}
