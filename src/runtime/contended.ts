/** How long a key counts as held after it was found held. */
const MEMORY_MS = 100

/** Keys that are remembered at most. */
const MAX_KEYS = 1_000

/**
 * Keys whose rows others have held lately.
 *
 * A check of such a key goes to a statement that may wait. An attempt without waiting would usually fail.
 */
export class Contended {
  readonly #until = new Map<string, number>()

  add(key: string): void {
    if (this.#until.size >= MAX_KEYS) this.#until.clear()
    this.#until.set(key, performance.now() + MEMORY_MS)
  }

  has(key: string): boolean {
    if (this.#until.size === 0) return false
    const until = this.#until.get(key)
    if (until === undefined) return false
    if (performance.now() < until) return true
    this.#until.delete(key)
    return false
  }
}
