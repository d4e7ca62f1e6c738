const SPAN_MS = 60_000

interface Count {
  /** Unix milliseconds. */
  readonly at: number
  readonly denials: number
}

/** How many denials a second there were in the last minute. Rows count by the hour, so it takes two looks. */
export class Pace {
  #from = Number.NaN
  #counts: Count[] = []

  /** Notes the denials since the hour `from`. Returns denials a second, or undefined after the first look. */
  note(from: number, count: Count): number | undefined {
    // When an hour is left out, the denials become fewer.
    if (from !== this.#from) this.#counts = []
    this.#from = from
    const last = this.#counts.findLastIndex(({ at }) => at <= count.at - SPAN_MS)
    this.#counts = [...this.#counts.slice(Math.max(last, 0)), count]
    const [first = count] = this.#counts
    if (first.at >= count.at) return undefined
    return ((count.denials - first.denials) * 1000) / (count.at - first.at)
  }
}
