/** The calls of a limiter that wait for a slot. For each key only the first one looks. */
export class Line {
  readonly #places = new Map<string, Place[]>()

  /** Joins the line of the key, at its end. */
  join(key: string): Place {
    const places = this.#places.get(key) ?? []
    this.#places.set(key, places)
    const place = new Place((gone) => this.#leave(key, places, gone))
    places.push(place)
    places[0]?.call()
    return place
  }

  #leave(key: string, places: Place[], gone: Place): void {
    const at = places.indexOf(gone)
    if (at >= 0) places.splice(at, 1)
    if (places.length === 0) this.#places.delete(key)
    else places[0]?.call()
  }
}

/** A place in the line of a key. */
export class Place {
  /** Resolves when the call is the first in the line. */
  readonly isFirst: Promise<void>
  readonly leave: () => void
  #resolve = () => {}

  constructor(leave: (gone: Place) => void) {
    this.isFirst = new Promise((resolve) => {
      this.#resolve = resolve
    })
    this.leave = () => leave(this)
  }

  call(): void {
    this.#resolve()
  }
}
