/** For how long no other place is freed after the first one. */
const MIN_PAUSE_MS = 2_000

/** The longest pause. A timer can be no longer than 24 days. */
const MAX_PAUSE_MS = 86_400_000

/**
 * The statements that may be under way at once.
 *
 * A statement that nobody waits for any more may never end: its connection may be dead without a word. So its
 * place can be freed. But the database may just be slow, and the statement keeps a connection of the pool. So
 * each pause between two places that are freed is twice as long as the one before, until a statement ends.
 */
export class Places {
  readonly #count: number
  readonly #onRoom: () => void
  readonly #taken = new Set<object>()
  readonly #abandoned = new Set<object>()
  #freedAt = Number.NEGATIVE_INFINITY
  #pauseMs = MIN_PAUSE_MS
  /** For the rest of the pause, if somebody waits for a place. */
  #timer: ReturnType<typeof setTimeout> | undefined

  /** @param onRoom Called at the end of a pause in which `hasRoom` was asked. */
  constructor(count: number, onRoom: () => void) {
    this.#count = count
    this.#onRoom = onRoom
  }

  get free(): number {
    return this.#count - this.#taken.size
  }

  take(work: object): void {
    this.#taken.add(work)
  }

  /** The statement has ended. */
  leave(work: object): void {
    this.#taken.delete(work)
    this.#abandoned.delete(work)
    this.#pauseMs = MIN_PAUSE_MS
  }

  /** Nobody waits for the statement any more. */
  abandon(work: object): void {
    if (this.#taken.has(work)) this.#abandoned.add(work)
  }

  /**
   * Whether a place is free. If none is, the place of an abandoned statement may be freed. In the pause it is
   * not, and `onRoom` is called at its end.
   */
  hasRoom(): boolean {
    this.stopWaiting()
    if (this.free > 0) return true
    const [stuck] = this.#abandoned
    if (!stuck) return false
    const now = performance.now()
    const leftMs = this.#freedAt + this.#pauseMs - now
    // Fake timers that end take the clock back.
    if (leftMs > 0 && leftMs <= this.#pauseMs) {
      this.#timer = setTimeout(this.#onRoom, Math.ceil(leftMs))
      // It keeps no process alive. In some runtimes it is a number.
      this.#timer.unref?.()
      return false
    }
    this.#abandoned.delete(stuck)
    this.#taken.delete(stuck)
    if (this.#freedAt > Number.NEGATIVE_INFINITY) this.#pauseMs = Math.min(this.#pauseMs * 2, MAX_PAUSE_MS)
    this.#freedAt = now
    return true
  }

  /** Nobody waits for a place any more. */
  stopWaiting(): void {
    clearTimeout(this.#timer)
  }
}

/** As many keys or lists are always worth a statement. */
const WORTH_ONE = 24

/**
 * Whether what is ready is worth a statement beside those that are under way: as much as these have, or enough.
 *
 * While the server works on one statement, the process fills the next. If each key were sent at once, the two
 * would wait for each other half of the time. With few callers no call waits for the answer of another.
 */
export function isWorthOne(ready: number, underWay: number): boolean {
  return ready > 0 && ready >= Math.min(underWay, WORTH_ONE)
}
