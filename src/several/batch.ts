/** Lists in one statement: enough for any burst, few enough to stay short. */
const MAX_LISTS = 100

/** Longer lists have a statement of their own, which is long already. */
const MAX_ROWS = 4

/** A list that waits for its turn. */
export interface Queued {
  /** Its rows, by names that no other row has. */
  readonly rows: readonly string[]
  /** Lists of one kind may share a statement. */
  readonly kind: string
  /** For each row what it asks, if lists that ask the same may have the row in common; otherwise undefined. */
  readonly asks: readonly (number | undefined)[]
}

/**
 * Lists for one statement. They are of one kind, and each has rows of its own, apart from those that all have
 * in common: a limit for everybody beside one for each user.
 */
export class Batch<List extends Queued> {
  readonly lists: List[]
  readonly #rows: Set<string>
  #isCommon: readonly boolean[]

  constructor(first: List) {
    this.lists = [first]
    this.#rows = new Set(first.rows)
    this.#isCommon = first.rows.map(() => false)
  }

  /** Whether the row at each place is the same one for all lists. */
  get isCommon(): readonly boolean[] {
    return this.#isCommon
  }

  get isFull(): boolean {
    return this.lists.length >= MAX_LISTS
  }

  /** Adds the list if it fits in. The second list decides which rows are common. */
  add(list: List): boolean {
    const [first] = this.lists as [List]
    if (list.kind !== first.kind || this.isFull || list.rows.length > MAX_ROWS) return false
    const isSame = list.rows.map((row, place) => row === first.rows[place])
    const isCommon = this.lists.length === 1 ? isSame : this.#isCommon
    const fits = list.rows.every((row, place) => {
      if (!isCommon[place]) return !this.#rows.has(row)
      const asked = list.asks[place]
      return isSame[place] && asked !== undefined && asked === first.asks[place]
    })
    if (!fits) return false
    this.#isCommon = isCommon
    this.lists.push(list)
    for (const row of list.rows) this.#rows.add(row)
    return true
  }
}
