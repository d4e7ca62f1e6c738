/** Values by their keys. When it is full, it forgets the value that was added first. */
export class Recent<Key, Value> {
  readonly #values = new Map<Key, Value>()
  readonly #most: number

  constructor(most: number) {
    this.#most = most
  }

  add(key: Key, value: Value): void {
    this.#values.delete(key)
    this.#values.set(key, value)
    const [oldest] = this.#values.size > this.#most ? this.#values.keys() : []
    if (oldest !== undefined) this.#values.delete(oldest)
  }

  /** Returns the value and forgets it. */
  take(key: Key): Value | undefined {
    const value = this.#values.get(key)
    this.#values.delete(key)
    return value
  }
}
