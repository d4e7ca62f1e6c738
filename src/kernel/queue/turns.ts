import { RatelimitError } from '../errors.ts'
import { RowQueues } from './row-queues.ts'
import { type Kind, SharedStatements } from './shared-statements.ts'
import { atEndOfTurn, SlotsInTurn } from './slots.ts'
import { FittingLists, type ListBatch, type QueuedList, WaitingList } from './waiting-list.ts'
import { overload } from './waits.ts'

/** How many statements of each kind may use a connection: shared ones, single ones, and those that wait. */
const MAX_STATEMENTS = 4

/**
 * Decides lists by one statement, in their order. It waits for no row. `isCommon` marks the rows that all lists
 * have in common. `tell` ends a list that is decided, or that has failed while others may be charged.
 */
export type DecideTogether<List, Found> = (
  lists: readonly List[],
  isCommon: readonly boolean[],
  tell: (place: number, verdict: Found | RatelimitError) => void,
) => Promise<void>

/**
 * Decides a list by itself, which a statement has left undecided. `mayWait` resolves when the list may wait for
 * rows that others hold. Until then it has no slot. Lists go on that wait for its other rows, if it names those
 * that are `held`.
 */
export type DecideAlone<List, Found> = (
  list: List,
  mayWait: (held: readonly string[]) => Promise<void>,
) => Promise<Found>

export interface Turn<Found> {
  /** Whether the list waits behind others for one of its rows. */
  readonly isBehind: boolean
  /** Resolves when the list is decided. */
  readonly comes: Promise<Found>
  /** Its caller has given up. The lists behind it go on, because its statement may never end. */
  giveUp(): void
}

/**
 * The turns of lists on one database. Lists with the same row go one after the other, unless it is a common row
 * of one statement. Lists of one kind that are ready at the same time share a statement. A list that this
 * leaves undecided goes on alone.
 */
export class Turns<List extends QueuedList, Found> {
  readonly #decide: DecideTogether<List, Found>
  readonly #decideAlone: DecideAlone<List, Found>
  /** For lists that are the first for each of their rows, if these are free. */
  readonly #shared = new SharedStatements<WaitingList<List, Found>>(MAX_STATEMENTS, (kind, most) =>
    this.#sendTogether(kind, most),
  )
  readonly #alone = new SlotsInTurn<ListBatch<List, Found>>(MAX_STATEMENTS)
  /** For lists alone that may wait for rows that others hold. */
  readonly #patient = new SlotsInTurn<ListBatch<List, Found>>(MAX_STATEMENTS)
  readonly #queues = new RowQueues<WaitingList<List, Found>, ListBatch<List, Found>>()
  #waiting = 0
  /** Callers who were just answered mostly ask again within so many microtasks. */
  readonly #startSoon = atEndOfTurn(() => this.#start(), 64)

  constructor(decide: DecideTogether<List, Found>, decideAlone: DecideAlone<List, Found>) {
    this.#decide = decide
    this.#decideAlone = decideAlone
  }

  /** @throws RatelimitError `OVERLOADED` */
  enter(list: List): Turn<Found> {
    const refusal = overload(this.#queues.longest(list.rows), this.#waiting)
    if (refusal) throw refusal
    const one = new WaitingList<List, Found>(list)
    this.#queues.enter(one)
    this.#waiting++
    const isBehind = !this.#getReady(one)
    this.#startSoon()
    return { isBehind, comes: one.comes, giveUp: () => this.#giveUp(one) }
  }

  #getReady(one: WaitingList<List, Found>): boolean {
    if (!this.#queues.isFirst(one, undefined)) return false
    const { alone } = one
    if (alone) this.#alone.enter(alone, () => this.#beginAlone(one, alone))
    else this.#shared.add(one)
    return true
  }

  #start(): void {
    this.#patient.start()
    this.#alone.start()
    this.#shared.start()
  }

  #beginAlone(one: WaitingList<List, Found>, batch: ListBatch<List, Found>): void {
    this.#waiting--
    this.#queues.start(one, batch)
    this.#finish(one, (held) => this.#mayWait(batch, held)).then(() => this.#end(batch))
  }

  /** Decides the list by statements of its own. */
  #finish(
    { list, come, fail }: WaitingList<List, Found>,
    mayWait: (held: readonly string[]) => Promise<void>,
  ): Promise<void> {
    return this.#decideAlone(list, mayWait).then(come, fail)
  }

  #sendTogether({ name, items }: Kind<WaitingList<List, Found>>, most: number): void {
    const batch: ListBatch<List, Found> = { lists: [], slots: this.#shared }
    const isCommon = this.#fill(batch, items, most)
    const { lists } = batch
    this.#shared.begin(batch, name, lists.length)
    const tell = (place: number, verdict: Found | RatelimitError) => {
      const one = lists[place]
      if (!one) return
      if (verdict instanceof RatelimitError) one.fail(verdict)
      else one.come(verdict)
      // The batch can be abandoned without it.
      one.isTold = one.isOver = true
    }
    const sent = lists.map(({ list }) => list)
    this.#decide(sent, isCommon, tell).then(
      () => this.#decided(batch),
      (error) => {
        for (const one of lists) one.fail(error)
        this.#end(batch)
      },
    )
  }

  /** Moves ready lists that can share a statement into the batch. Returns which rows all of them have. */
  #fill(
    batch: ListBatch<List, Found>,
    ready: ReadonlySet<WaitingList<List, Found>>,
    most: number,
  ): readonly boolean[] {
    const fitting = new FittingLists()
    const mayBeCommon = this.#mayBeCommon(ready)
    for (const each of ready) {
      const candidates = [each]
      for (const one of candidates) {
        if (!fitting.add(one.list)) continue
        this.#notReady(one)
        batch.lists.push(one)
        const next = this.#queues.start(one, batch)
        if (mayBeCommon)
          candidates.push(...next.filter((own) => !own.alone && this.#queues.isFirst(own, batch)))
      }
      if (fitting.isFull || batch.lists.length >= most) break
    }
    return fitting.isCommon
  }

  /**
   * Whether more lists wait for a row of the first ready list than could share its statement without that row.
   * If few do, the row would leave out all others.
   */
  #mayBeCommon(ready: ReadonlySet<WaitingList<List, Found>>): boolean {
    const [first] = ready
    return first !== undefined && this.#queues.longest(first.rows) >= ready.size
  }

  #notReady(one: WaitingList<List, Found>): void {
    this.#waiting--
    this.#shared.remove(one)
    if (one.alone) this.#alone.remove(one.alone)
  }

  /**
   * If undecided lists have a row in common, the first one goes on alone. The others try once more to share a
   * statement: if another process held the row, it is free once the first list has had it.
   */
  #decided(batch: ListBatch<List, Found>): void {
    const back: WaitingList<List, Found>[] = []
    const waitedFor = new Set<string>()
    for (const one of batch.lists) {
      if (one.isTold) continue
      if (one.isOver) {
        // Its caller has given up, so it sends nothing more, and needs no slot.
        this.#finish(one, async () => {})
        continue
      }
      const isFirst = !one.rows.some((row) => waitedFor.has(row))
      if (isFirst || one.hasTried) one.alone = { lists: [one], slots: this.#alone }
      one.hasTried = true
      for (const row of one.rows) waitedFor.add(row)
      back.unshift(one)
    }
    for (const one of back) this.#queues.putBack(one)
    this.#waiting += back.length
    this.#end(batch)
  }

  #end(batch: ListBatch<List, Found>): void {
    batch.slots.leave(batch)
    this.#free(batch)
    // The sets of slots would keep them in memory in the same way.
    batch.lists.length = 0
  }

  #free(batch: ListBatch<List, Found>): void {
    this.#freeRows(batch, () => true)
    this.#startSoon()
  }

  #freeRows(batch: ListBatch<List, Found>, isFree: (row: string) => boolean): void {
    const rows = batch.lists.flatMap((list) => list.rows).filter(isFree)
    this.#queues.end(rows, batch)
    this.#goOn(rows)
  }

  #goOn(rows: readonly string[]): void {
    for (const row of rows) {
      const next = this.#queues.next(row)
      if (next) this.#getReady(next)
    }
  }

  #mayWait(batch: ListBatch<List, Found>, held: readonly string[]): Promise<void> {
    batch.slots.leave(batch)
    batch.slots = this.#patient
    if (held.length > 0) this.#freeRows(batch, (row) => !held.includes(row))
    for (const row of held) this.#goOn(this.#queues.park(row))
    this.#startSoon()
    return new Promise((resolve) => {
      this.#patient.enter(batch, resolve)
    })
  }

  #giveUp(one: WaitingList<List, Found>): void {
    if (one.isOver) return
    one.isOver = true
    const { batch } = one
    if (!batch) {
      this.#notReady(one)
      this.#queues.dequeue(one)
      this.#goOn(one.rows)
      this.#startSoon()
    } else if (batch.lists.every(({ isOver }) => isOver)) {
      batch.slots.abandon(batch)
      this.#free(batch)
    }
  }
}
