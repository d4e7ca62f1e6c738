import { MAX_WAITING, overloaded } from './coalescer.ts'

/** For how long a call counts where a runtime may cut off its request: then it never leaves. */
const LOST_MS = 60_000

/** Calls that wait for the database on their own: so many at once. */
export class Room {
  readonly #cutsOff: boolean
  /** When each of them came, the first one first. */
  readonly #waiting = new Set<{ readonly at: number }>()

  /** @param cutsOff Whether calls may be cut off, so that the oldest ones may be there no more. */
  constructor(cutsOff: boolean) {
    this.#cutsOff = cutsOff
  }

  /**
   * Lets a call in.
   *
   * @returns What to do when the call has ended.
   * @throws RatelimitError `OVERLOADED`
   */
  enter(): () => void {
    const now = this.#cutsOff ? performance.now() : 0
    if (this.#waiting.size >= MAX_WAITING && !this.#forgetLost(now)) throw overloaded()
    const entry = { at: now }
    this.#waiting.add(entry)
    return () => this.#waiting.delete(entry)
  }

  #forgetLost(now: number): boolean {
    for (const entry of this.#waiting) {
      if (now - entry.at < LOST_MS) break
      this.#waiting.delete(entry)
    }
    return this.#waiting.size < MAX_WAITING
  }
}
