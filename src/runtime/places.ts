import type { Trip } from './call.ts'

/** For how long no other place is freed after the first one. */
const MIN_PAUSE_MS = 2_000

/**
 * The statements that may be under way at once.
 *
 * A statement that nobody waits for any more may never end: its connection may be dead without a word. So its
 * place can be freed. But the database may just be slow, and the statement keeps a connection of the pool. So
 * each pause between two places that are freed is twice as long as the one before, until a statement ends.
 */
export class Places {
  readonly #count: number
  readonly #taken = new Set<Trip>()
  readonly #abandoned = new Set<Trip>()
  #freedAt = Number.NEGATIVE_INFINITY
  #pauseMs = MIN_PAUSE_MS

  constructor(count: number) {
    this.#count = count
  }

  get free(): number {
    return this.#count - this.#taken.size
  }

  take(trip: Trip): void {
    this.#taken.add(trip)
  }

  /** The statement has ended. */
  leave(trip: Trip): void {
    this.#taken.delete(trip)
    this.#abandoned.delete(trip)
    this.#pauseMs = MIN_PAUSE_MS
  }

  /** Nobody waits for the statement any more. */
  abandon(trip: Trip): void {
    if (this.#taken.has(trip)) this.#abandoned.add(trip)
  }

  /** Whether a place is free. If none is, the place of an abandoned statement may be freed. */
  hasRoom(): boolean {
    if (this.free > 0) return true
    const [stuck] = this.#abandoned
    const now = performance.now()
    if (!stuck || now - this.#freedAt < this.#pauseMs) return false
    this.#abandoned.delete(stuck)
    this.#taken.delete(stuck)
    if (this.#freedAt > Number.NEGATIVE_INFINITY) this.#pauseMs *= 2
    this.#freedAt = now
    return true
  }
}
