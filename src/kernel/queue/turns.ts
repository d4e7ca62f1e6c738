import type { RatelimitError } from '../errors.ts'
import { FittingLists, type QueuedList } from './fitting-lists.ts'
import { type CanBeReady, type Kind, Kinds, type UnderWay } from './kinds.ts'
import { RowQueues, type Waiter } from './row-queues.ts'
import { atEndOfTurn, ConnectionSlots } from './slots.ts'
import { overload } from './waits.ts'

/** How many statements of each kind may use a connection: shared ones, single ones, and those that wait. */
const MAX_STATEMENTS = 4

/** The rows that a statement found of a list, and whether they decide the list. */
export interface Verdict<Found> {
  readonly found: Found | undefined
  readonly isDecided: boolean
  /** Why the list has failed, while others of its statement may be charged. */
  readonly failure?: RatelimitError | undefined
}

/**
 * Decides lists by one statement, in their order. It waits for no row. `isCommon` marks the rows that all lists
 * have in common. `tell` gives a list its verdict before the others have theirs.
 */
export type DecideTogether<List, Found> = (
  lists: readonly List[],
  isCommon: readonly boolean[],
  tell: (place: number, found: Found) => void,
) => Promise<readonly Verdict<Found>[]>

export interface Turn<Found> {
  /** Whether the list waits behind others for one of its rows. */
  readonly isBehind: boolean
  /**
   * Resolves when the list is decided, or when its turn comes to go on alone, with the rows that a statement
   * found. Rejects with the error of a shared statement.
   */
  readonly comes: Promise<Found | undefined>
  /** Resolves when the list may wait for rows that others hold. Until then it has no slot. */
  mayWait(): Promise<void>
  leave(): void
  /** Its caller has given up. The lists behind it go on, because its statement may never end. */
  giveUp(): void
}

class WaitingList<List extends QueuedList, Found>
  implements
    Turn<Found>,
    QueuedList,
    Waiter<ListBatch<List, Found>>,
    CanBeReady<string, WaitingList<List, Found>>
{
  readonly rows: readonly string[]
  readonly kind: string
  readonly shares: QueuedList['shares']
  readonly list: List
  readonly comes: Promise<Found | undefined>
  come!: (found: Found | undefined) => void
  fail!: (error: unknown) => void
  isBehind = false
  first = 0
  batch: ListBatch<List, Found> | undefined = undefined
  hasTried = false
  ready: Kind<string, WaitingList<List, Found>> | undefined = undefined
  /** The verdict of the statement that left it undecided. The list goes on alone. */
  undecided: Verdict<Found> | undefined = undefined
  /** Its caller has given up. */
  isOver = false
  readonly #turns: Turns<List, Found>

  constructor(turns: Turns<List, Found>, list: List) {
    this.#turns = turns
    this.list = list
    this.rows = list.rows
    this.kind = list.kind
    this.shares = list.shares
    this.comes = new Promise((resolve, reject) => {
      this.come = resolve
      this.fail = reject
    })
  }

  mayWait(): Promise<void> {
    return this.#turns.mayWait(this)
  }

  leave(): void {
    this.#turns.leave(this)
  }

  giveUp(): void {
    this.#turns.giveUp(this)
  }
}

interface ListBatch<List extends QueuedList, Found> {
  readonly lists: WaitingList<List, Found>[]
  slots: ConnectionSlots
}

/**
 * The turns of lists on one database. Lists with the same row go one after the other, unless it is a common row
 * of one statement. Lists of one kind that are ready at the same time share a statement. A list that this
 * leaves undecided goes on alone.
 */
export class Turns<List extends QueuedList, Found> {
  readonly #decide: DecideTogether<List, Found>
  readonly #shared = new ConnectionSlots(MAX_STATEMENTS, () => this.#start())
  readonly #alone = new ConnectionSlots(MAX_STATEMENTS, () => this.#start())
  /** For lists alone that may wait for rows that others hold. */
  readonly #patient = new ConnectionSlots(MAX_STATEMENTS, () => this.#start())
  readonly #queues = new RowQueues<WaitingList<List, Found>, ListBatch<List, Found>>()
  /** The lists that are the first for each of their rows, if these are free, by their kinds. */
  readonly #ready = new Kinds<string, WaitingList<List, Found>>((one, other) => one === other)
  readonly #readyAlone = new Set<WaitingList<List, Found>>()
  /** The batches that are going to wait for rows, and what to call when they may. */
  readonly #readyToWait = new Map<ListBatch<List, Found>, () => void>()
  /** The shared batches that still have callers. */
  readonly #underWay = new Map<ListBatch<List, Found>, UnderWay<string>>()
  #waiting = 0
  /** Callers who were just answered mostly ask again within so many microtasks. */
  readonly #startSoon = atEndOfTurn(() => this.#start(), 64)

  constructor(decide: DecideTogether<List, Found>) {
    this.#decide = decide
  }

  /** @throws RatelimitError `OVERLOADED` */
  enter(list: List): Turn<Found> {
    const refusal = overload(this.#queues.longest(list.rows), this.#waiting)
    if (refusal) throw refusal
    const one = new WaitingList<List, Found>(this, list)
    this.#queues.enter(one)
    this.#waiting++
    one.isBehind = !this.#getReady(one)
    this.#startSoon()
    return one
  }

  #getReady(one: WaitingList<List, Found>): boolean {
    if (!this.#queues.isFirst(one, undefined)) return false
    if (one.undecided) this.#readyAlone.add(one)
    else this.#ready.add(one, one.kind)
    return true
  }

  #start(): void {
    for (const [batch, begin] of this.#readyToWait) {
      if (!this.#patient.hasRoom()) break
      this.#readyToWait.delete(batch)
      this.#patient.take(batch)
      begin()
    }
    for (const one of this.#readyAlone) {
      if (!this.#alone.hasRoom()) break
      const batch = this.#openBatch(this.#alone)
      this.#addTo(one, batch)
      one.come(one.undecided?.found)
    }
    for (;;) {
      const kind = this.#ready.next(this.#underWay.values())
      if (!kind || !this.#shared.hasRoom()) return
      this.#sendTogether(kind)
      this.#ready.wasSent(kind)
    }
  }

  #openBatch(slots: ConnectionSlots): ListBatch<List, Found> {
    const batch = { lists: [], slots }
    slots.take(batch)
    return batch
  }

  #sendTogether(kind: Kind<string, WaitingList<List, Found>>): void {
    const most = this.#ready.shareOf(kind, this.#underWay.values(), this.#shared.free)
    const batch = this.#openBatch(this.#shared)
    const lists = kind.items
    let fitting: FittingLists<WaitingList<List, Found>> | undefined
    const mayBeCommon = this.#mayBeCommon(lists)
    for (const ready of lists) {
      const candidates = [ready]
      for (const one of candidates) {
        if (fitting && !fitting.add(one)) continue
        fitting ??= new FittingLists(one)
        const next = this.#addTo(one, batch)
        if (mayBeCommon)
          candidates.push(...next.filter((each) => !each.undecided && this.#queues.isFirst(each, batch)))
      }
      if (fitting?.isFull || batch.lists.length >= most) break
    }
    const sent = batch.lists.map(({ list }) => list)
    this.#underWay.set(batch, { like: kind.like, size: sent.length })
    const tell = (place: number, found: Found) => {
      const one = batch.lists[place]
      if (!one) return
      one.come(found)
      // Its caller waits no more, so the batch can be abandoned without it.
      one.isOver = true
    }
    this.#decide(sent, fitting?.isCommon ?? [], tell).then(
      (verdicts) => this.#decided(batch, verdicts),
      (error) => {
        for (const one of batch.lists) one.fail(error)
        this.#end(batch)
      },
    )
  }

  /**
   * Whether more lists wait for a row of the first ready list than could share its statement without that row.
   * If few do, the row would leave out all others.
   */
  #mayBeCommon(lists: ReadonlySet<WaitingList<List, Found>>): boolean {
    const [first] = lists
    return first !== undefined && this.#queues.longest(first.rows) >= lists.size
  }

  /** Moves it from the queues of its rows into the batch. Returns the lists that are next. */
  #addTo(one: WaitingList<List, Found>, batch: ListBatch<List, Found>): readonly WaitingList<List, Found>[] {
    this.#notReady(one)
    batch.lists.push(one)
    return this.#queues.start(one, batch)
  }

  #notReady(one: WaitingList<List, Found>): void {
    this.#waiting--
    this.#readyAlone.delete(one)
    this.#ready.remove(one)
  }

  /**
   * If undecided lists have a row in common, the first one goes on alone. The others try once more to share a
   * statement: if another process held the row, it is free once the first list has had it.
   */
  #decided(batch: ListBatch<List, Found>, verdicts: readonly Verdict<Found>[]): void {
    const back: WaitingList<List, Found>[] = []
    const waitedFor = new Set<string>()
    batch.lists.forEach((one, place) => {
      const verdict = verdicts[place]
      if (verdict?.failure) {
        one.fail(verdict.failure)
        return
      }
      // A list whose caller has given up ends here, and sends nothing more.
      if (verdict?.isDecided || one.isOver) {
        one.come(verdict?.found)
        return
      }
      const isFirst = !one.rows.some((row) => waitedFor.has(row))
      if (isFirst || one.hasTried) one.undecided = verdict ?? { found: undefined, isDecided: false }
      one.hasTried = true
      for (const row of one.rows) waitedFor.add(row)
      back.unshift(one)
    })
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
    this.#underWay.delete(batch)
    const rows = batch.lists.flatMap((list) => list.rows)
    this.#queues.end(rows, batch)
    this.#goOn(rows)
    this.#startSoon()
  }

  #goOn(rows: readonly string[]): void {
    for (const row of rows) {
      const next = this.#queues.next(row)
      if (next) this.#getReady(next)
    }
  }

  mayWait({ batch }: WaitingList<List, Found>): Promise<void> {
    if (!batch) return Promise.resolve()
    batch.slots.leave(batch)
    batch.slots = this.#patient
    this.#startSoon()
    return new Promise((resolve) => {
      this.#readyToWait.set(batch, resolve)
    })
  }

  leave({ batch }: WaitingList<List, Found>): void {
    if (batch && batch.slots !== this.#shared) this.#end(batch)
  }

  giveUp(one: WaitingList<List, Found>): void {
    if (one.isOver) return
    one.isOver = true
    const { batch } = one
    if (batch) {
      if (batch.lists.some(({ isOver }) => !isOver)) return
      this.#readyToWait.get(batch)?.()
      this.#readyToWait.delete(batch)
      batch.slots.abandon(batch)
      this.#free(batch)
      return
    }
    this.#notReady(one)
    this.#queues.dequeue(one)
    this.#goOn(one.rows)
    if (this.#ready.isEmpty) this.#shared.stopWaiting()
    if (this.#readyAlone.size === 0) this.#alone.stopWaiting()
    if (this.#readyToWait.size === 0) this.#patient.stopWaiting()
    this.#startSoon()
  }
}
