import type { Waiter } from './row-queues.ts'
import type { CanBeReady } from './shared-statements.ts'
import type { ConnectionSlots } from './slots.ts'

/** Lists that share a statement, or one that goes on alone. */
export interface ListBatch<List extends QueuedList, Found> {
  readonly lists: WaitingList<List, Found>[]
  slots: Pick<ConnectionSlots, 'leave' | 'abandon'>
}

/** A list that waits for its turn. */
export class WaitingList<List extends QueuedList, Found>
  implements Waiter<ListBatch<List, Found>>, CanBeReady<WaitingList<List, Found>>
{
  readonly list: List
  readonly rows: readonly string[]
  readonly kind: string
  readonly comes: Promise<Found>
  come!: (found: Found) => void
  fail!: (error: unknown) => void
  first = 0
  batch: ListBatch<List, Found> | undefined = undefined
  hasTried = false
  ready: CanBeReady<WaitingList<List, Found>>['ready'] = undefined
  /** The batch in which it goes on alone, because a statement has left it undecided. */
  alone: ListBatch<List, Found> | undefined = undefined
  isTold = false
  /** Its caller waits no more. */
  isOver = false

  constructor(list: List) {
    this.list = list
    this.rows = list.rows
    this.kind = list.kind
    this.comes = new Promise((resolve, reject) => {
      this.come = resolve
      this.fail = reject
    })
  }
}

/** The most lists in one statement, and the most rows: enough for a burst, and few enough to keep it short. */
const MAX_LISTS = 100
const MAX_SHARED_ROWS = 400

export interface QueuedList {
  /** The unique names of its rows. */
  readonly rows: readonly string[]
  /** Only lists of one kind can share a statement. */
  readonly kind: string
  /**
   * Lists may have a row in common if they agree in this: its limit, and the window that paid what is settled
   * in it. Undefined for rows that they may not have in common.
   */
  readonly shares: readonly (string | undefined)[]
}

/**
 * Which lists fit into one statement. They are of one kind. All their rows differ, apart from common rows that
 * every list has, such as a limit for all users next to a limit for each user.
 */
export class FittingLists {
  #first: QueuedList | undefined
  #size = 0
  readonly #rows = new Set<string>()
  /** Whether the row at each place is the same one for all lists. */
  isCommon: readonly boolean[] = []

  get isFull(): boolean {
    const next = this.#size + 1
    return next > MAX_LISTS || next * (this.#first?.rows.length ?? 0) > MAX_SHARED_ROWS
  }

  /** Adds the list if it fits. The first one does, and the second one decides which rows are common. */
  add(list: QueuedList): boolean {
    const first = this.#first
    if (first && (list.kind !== first.kind || this.isFull)) return false
    const isSame = (row: string, place: number) => row === first?.rows[place]
    const isCommon = this.#size > 1 ? this.isCommon : list.rows.map(isSame)
    const fits = list.rows.every((row, place) => {
      if (!isCommon[place]) return !this.#rows.has(row)
      const shared = list.shares[place]
      return isSame(row, place) && shared !== undefined && shared === first?.shares[place]
    })
    if (!fits) return false
    this.#first ??= list
    this.#size++
    this.isCommon = isCommon
    for (const row of list.rows) this.#rows.add(row)
    return true
  }
}
