/** How many statements may wait at once for rows that others hold. */
const MAX_PATIENT = 4

/** After this wait for a slot, a held key is tried again without waiting, because its row may be free. */
const HELD_RETRY_MS = 50

/** How long a key counts as held after it was found held. */
const MEMORY_MS = 100

const MAX_HELD_KEYS = 1_000

interface Queue {
  readonly key: string
  isHeld: boolean
}

/** Queues whose rows others hold. Each gets a statement of its own, which may wait and delays no other key. */
export class HeldQueues<Q extends Queue> {
  readonly #decideAlone: (queue: Q) => Promise<void>
  readonly #tryAgain: (queues: Iterable<Q>) => void
  readonly #queues = new Set<Q>()
  readonly #heldUntil = new Map<string, number>()
  /**
   * The keys whose statements may wait. A statement counts until it ends, even if its callers have given up.
   */
  readonly #patient = new Set<string>()
  #retrying = false

  /**
   * @param decideAlone Decides the first group of a queue by a statement that may wait for the row.
   * @param tryAgain Tries queues again by statements that do not wait.
   */
  constructor(decideAlone: (queue: Q) => Promise<void>, tryAgain: (queues: Iterable<Q>) => void) {
    this.#decideAlone = decideAlone
    this.#tryAgain = tryAgain
  }

  add(queue: Q): void {
    if (this.#heldUntil.size >= MAX_HELD_KEYS) this.#heldUntil.clear()
    this.#heldUntil.set(queue.key, performance.now() + MEMORY_MS)
    this.#add(queue)
  }

  /** Adds a queue if its row was held lately, because a statement that does not wait would usually fail. */
  addIfHeldLately(queue: Q): boolean {
    const until = this.#heldUntil.get(queue.key)
    const isHeld = until !== undefined && performance.now() < until
    if (isHeld) this.#add(queue)
    return isHeld
  }

  #add(queue: Q): void {
    queue.isHeld = true
    this.#queues.add(queue)
  }

  remove(queue: Q): void {
    this.#queues.delete(queue)
  }

  start(): void {
    for (const queue of this.#queues) {
      const isFull = this.#patient.size === MAX_PATIENT
      if (isFull || this.#patient.has(queue.key)) {
        this.#retryLater()
        if (isFull) return
        continue
      }
      this.#queues.delete(queue)
      this.#patient.add(queue.key)
      this.#decideAlone(queue).then(() => {
        this.#patient.delete(queue.key)
        this.start()
      })
    }
  }

  /** Rows that stay held may take all slots for long. Meanwhile the rows of these queues may become free. */
  #retryLater(): void {
    if (this.#retrying) return
    this.#retrying = true
    setTimeout(() => {
      this.#retrying = false
      const waiting = [...this.#queues]
      this.#queues.clear()
      for (const queue of waiting) queue.isHeld = false
      this.#tryAgain(waiting)
    }, HELD_RETRY_MS)
  }
}
