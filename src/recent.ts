/**
 * A map of at most `max` entries. The key asked about or set longest ago is forgotten first.
 *
 * Libraries that do this weigh many times as much, and everyone who limits would load them.
 */
export class Recent<Value> {
  readonly #max: number
  /** A Map keeps the order in which keys were added, so a key that is asked about is added anew. */
  readonly #values = new Map<string, Value>()
  /** Goes on where it was. A new iterator would first have to pass all places of keys that are gone. */
  readonly #oldestFirst: Iterator<string, undefined> = this.#values.keys()

  constructor(max: number) {
    this.#max = max
  }

  get(key: string): Value | undefined {
    const value = this.#values.get(key)
    if (value !== undefined) this.set(key, value)
    return value
  }

  set(key: string, value: Value): void {
    this.#values.delete(key)
    this.#values.set(key, value)
    if (this.#values.size > this.#max) this.#values.delete(String(this.#oldestFirst.next().value))
  }

  delete(key: string): void {
    this.#values.delete(key)
  }
}
