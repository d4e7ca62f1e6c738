import type { QueuedList } from './fitting-lists.ts'
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
  /** What that statement has found. */
  found: Found | undefined = undefined
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
