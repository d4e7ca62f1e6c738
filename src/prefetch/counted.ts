/** Names, and how often each was added and not yet taken out. */
export class Counted {
  readonly #counts = new Map<string, number>()

  has(name: string): boolean {
    return this.#counts.has(name)
  }

  /** Returns what takes it out again. */
  add(name: string): () => void {
    this.#change(name, 1)
    return () => this.#change(name, -1)
  }

  #change(name: string, more: number): void {
    const count = (this.#counts.get(name) ?? 0) + more
    if (count > 0) this.#counts.set(name, count)
    else this.#counts.delete(name)
  }
}
