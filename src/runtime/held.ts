import type { Line } from './call.ts'

/** How many statements may wait at once for rows that others hold. */
const MAX_PATIENT = 4

/**
 * For how long a held key waits for a place before it is tried again without waiting: its row may be free by
 * then.
 */
const RETRY_MS = 50

/** How long a key counts as held after it was found held. */
const MEMORY_MS = 100

/** How many keys are remembered as held. */
const MAX_KEYS = 1_000

/** What becomes of the lines. */
export interface HeldOptions {
  /** Decides the first group of a line in a statement that may wait for its row. */
  decideAlone(line: Line): Promise<void>
  /** Tries lines again in statements that do not wait. */
  tryAgain(lines: Iterable<Line>): void
}

/**
 * Lines whose rows others hold. Each gets a statement of its own, which may wait, so that it delays nobody
 * else.
 */
export class HeldLines {
  readonly #options: HeldOptions
  readonly #lines = new Set<Line>()
  readonly #heldUntil = new Map<string, number>()
  /** The keys whose statements may wait. A statement that nobody waits for any more counts until it ends. */
  readonly #patient = new Set<string>()
  #retrying = false

  constructor(options: HeldOptions) {
    this.#options = options
  }

  /** Adds a line whose row was found held. */
  add(line: Line): void {
    if (this.#heldUntil.size >= MAX_KEYS) this.#heldUntil.clear()
    this.#heldUntil.set(line.key, performance.now() + MEMORY_MS)
    this.#add(line)
  }

  /** Adds a line if its row was held lately: a statement that does not wait would usually fail. */
  addIfHeldLately(line: Line): boolean {
    const until = this.#heldUntil.get(line.key)
    if (until === undefined) return false
    if (performance.now() < until) this.#add(line)
    else this.#heldUntil.delete(line.key)
    return this.#lines.has(line)
  }

  #add(line: Line): void {
    line.isHeld = true
    this.#lines.add(line)
  }

  remove(line: Line): void {
    this.#lines.delete(line)
  }

  /** Sends the lines that find a place; the others wait for one. */
  start(): void {
    for (const line of this.#lines) {
      if (this.#patient.size === MAX_PATIENT || this.#patient.has(line.key)) {
        this.#retryLater()
        continue
      }
      this.#lines.delete(line)
      this.#patient.add(line.key)
      this.#options.decideAlone(line).then(() => {
        this.#patient.delete(line.key)
        this.start()
      })
    }
  }

  /**
   * Rows that stay held may take all places for long. Meanwhile the rows of these lines may have become free.
   */
  #retryLater(): void {
    if (this.#retrying) return
    this.#retrying = true
    setTimeout(() => {
      this.#retrying = false
      const waiting = [...this.#lines]
      this.#lines.clear()
      this.#options.tryAgain(waiting)
    }, RETRY_MS)
  }
}
