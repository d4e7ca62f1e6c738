/**
 * A function that starts the work at the end of this turn of the event loop, once for all that ask for it.
 *
 * @param microtasks How many more to wait for: callers who were just answered ask again within a few.
 */
export function atEndOfTurn(start: () => void, microtasks = 0): () => void {
  let isWaiting = false
  return () => {
    if (isWaiting) return
    isWaiting = true
    endOfTurn(microtasks).then(() => {
      isWaiting = false
      start()
    })
  }
}

/** Promises, because fake timers such as Jest's replace queueMicrotask and process.nextTick. */
async function endOfTurn(microtasks: number): Promise<void> {
  for (let i = 0; i < microtasks; i++) await undefined
}

/** The pause after the first slot was freed. */
const MIN_PAUSE_MS = 2_000

/** The longest pause. A timer can run for 24 days at most. */
const MAX_PAUSE_MS = 86_400_000

/**
 * Slots for the statements that may be under way at once.
 *
 * A statement may never end, because its connection may be dead without an error. So the slot of a statement
 * can be freed once all its callers have given up. But the database may just be slow, and the statement still
 * uses a connection of the pool. So each pause between two freed slots is twice as long as the last one, until
 * a statement ends.
 */
export class ConnectionSlots {
  readonly #count: number
  readonly #onRoom: () => void
  readonly #taken = new Set<object>()
  readonly #abandoned = new Set<object>()
  #freedAt = Number.NEGATIVE_INFINITY
  /** Doubles when a slot is freed. */
  #pauseMs = MIN_PAUSE_MS / 2
  /** Runs while calls wait, for the rest of the pause or for a statement that may be slow. */
  #timer: ReturnType<typeof setTimeout> | undefined

  /** @param onRoom Called at the end of a pause in which `hasRoom` was called, and after `wait`. */
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

  leave(work: object): void {
    this.#taken.delete(work)
    this.#abandoned.delete(work)
    this.#pauseMs = MIN_PAUSE_MS
  }

  abandon(work: object): void {
    if (this.#taken.has(work)) this.#abandoned.add(work)
  }

  /**
   * Whether a slot is free. If none is, it frees the slot of an abandoned statement. During a pause it does
   * not, and `onRoom` is called at the end of the pause.
   */
  hasRoom(): boolean {
    this.stopWaiting()
    if (this.free > 0) return true
    const [stuck] = this.#abandoned
    if (!stuck) return false
    const now = performance.now()
    const leftMs = this.#freedAt + this.#pauseMs - now
    // When fake timers end, the clock goes back.
    if (leftMs > 0 && leftMs <= this.#pauseMs) {
      this.wait(Math.ceil(leftMs))
      return false
    }
    this.#abandoned.delete(stuck)
    this.#taken.delete(stuck)
    this.#pauseMs = Math.min(this.#pauseMs * 2, MAX_PAUSE_MS)
    this.#freedAt = now
    return true
  }

  /** Calls `onRoom` so many milliseconds later. */
  wait(ms: number): void {
    this.stopWaiting()
    this.#timer = setTimeout(this.#onRoom, ms)
    // The timer must not keep the process alive. In some runtimes it is a number.
    this.#timer.unref?.()
  }

  stopWaiting(): void {
    clearTimeout(this.#timer)
  }
}

/** Work that begins, in its order, when there is a slot for it. */
export class SlotsInTurn<Work extends object> extends ConnectionSlots {
  /** What to call when it begins. */
  readonly #waiting = new Map<Work, () => void>()

  constructor(count: number) {
    super(count, () => this.start())
  }

  enter(work: Work, begin: () => void): void {
    this.#waiting.set(work, begin)
  }

  start(): void {
    for (const [work, begin] of this.#waiting) {
      if (!this.hasRoom()) return
      this.#waiting.delete(work)
      this.take(work)
      begin()
    }
  }

  /** No caller waits for it any more. If it has not begun, it goes on without a slot, and sends nothing. */
  override abandon(work: Work): void {
    this.#waiting.get(work)?.()
    this.remove(work)
    super.abandon(work)
  }

  remove(work: Work): void {
    this.#waiting.delete(work)
    if (this.#waiting.size === 0) this.stopWaiting()
  }
}
