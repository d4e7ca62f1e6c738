import type { Statements } from '../database/statement.ts'

/**
 * How many rows the lists may have together whose statements connections keep. A list has two statements, with
 * and without a guard. In each, a row takes about a quarter of a megabyte of a backend's memory.
 */
const MAX_KEPT_ROWS = 128

/** How often a list is sent until connections keep its statement, so that rare lists take no room. */
const OFTEN = 10

/** How many lists are remembered. It is more than can be kept, because each of these has a row. */
const MAX_KEPT_LISTS = 512

/** What is remembered of lists of one kind. They have the same statement. */
export interface Remembered {
  /** The texts of their statement, with and without a guard. */
  readonly texts: Statements
  /** Whether connections keep the statement. */
  isKept: boolean
  sent: number
}

/** The lists that were sent to a table. */
export class KeptLists {
  readonly #remembered = new Map<string, Remembered>()
  #rows = 0

  /**
   * Notes that a list is sent. Returns what is remembered of its kind.
   *
   * @param rows How many rows it has. Undefined if the connection keeps no statements.
   */
  send(kind: string, rows: number | undefined): Remembered {
    const known = this.#remembered.get(kind) ?? this.#remember(kind)
    if (rows === undefined) return known
    known.sent++
    if (!known.isKept && known.sent > OFTEN && this.#rows + rows <= MAX_KEPT_ROWS) {
      known.isKept = true
      this.#rows += rows
    }
    return known
  }

  #remember(kind: string): Remembered {
    const made = { texts: new Map(), isKept: false, sent: 0 }
    this.#remembered.set(kind, made)
    if (this.#remembered.size > MAX_KEPT_LISTS) this.#forgetOldest()
    return made
  }

  #forgetOldest(): void {
    for (const [kind, { isKept }] of this.#remembered) {
      if (isKept) continue
      this.#remembered.delete(kind)
      return
    }
  }
}
