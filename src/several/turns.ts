import { isWorthOne } from '../runtime/batch-size.ts'
import { overload } from '../runtime/room.ts'
import { Slots } from '../runtime/slots.ts'
import { FittingLists, type Queued } from './fitting-lists.ts'

/**
 * How many statements of each kind may use a connection of the pool: shared ones, and those of single lists.
 */
const MAX_CONNECTIONS = 4

/** The rows that a statement found of a list, and whether they decide the list. */
export interface Verdict<Found> {
  readonly found: Found | undefined
  readonly isDecided: boolean
}

/**
 * Decides lists by one statement, in their order. It waits for no row. `isCommon` marks the rows that all lists
 * have in common.
 */
export type DecideTogether<List, Found> = (
  lists: readonly List[],
  isCommon: readonly boolean[],
) => Promise<readonly Verdict<Found>[]>

/** The turn of a list. */
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
  /** The list has ended. */
  leave(): void
  /** Its caller has given up. The lists behind it go on, because its statement may never end. */
  giveUp(): void
}

/** A list that waits or is under way. */
interface Waiting<List, Found> extends Queued {
  readonly list: List
  readonly come: (found: Found | undefined) => void
  readonly fail: (error: unknown) => void
  /** In how many of its rows' queues it is the first. */
  first: number
  /** Whether a statement left it undecided. */
  hasTried: boolean
  /** The verdict of the statement that left it undecided. The list goes on alone. */
  undecided: Verdict<Found> | undefined
  /** The batch that it is under way in. */
  batch: Batch<List, Found> | undefined
  /** Its caller has given up. */
  isOver: boolean
}

/** Lists that are under way together, or one alone. */
interface Batch<List, Found> {
  readonly lists: Waiting<List, Found>[]
  slots: Slots
}

/** The lists that wait for a row, in order, and the batch that is under way with the row. */
interface RowQueue<List, Found> {
  waiting: Set<Waiting<List, Found>>
  batch: Batch<List, Found> | undefined
}

/**
 * The turns of lists on one database. Lists with the same row go one after the other, unless it is a common row
 * of one statement. Lists that are ready at the same time share a statement. A list that this leaves undecided
 * goes on alone.
 */
export class Turns<List extends Queued, Found> {
  readonly #decide: DecideTogether<List, Found>
  readonly #shared = new Slots(MAX_CONNECTIONS, () => this.#start())
  readonly #alone = new Slots(MAX_CONNECTIONS, () => this.#start())
  /** For lists alone that may wait for rows that others hold. */
  readonly #patient = new Slots(MAX_CONNECTIONS, () => this.#start())
  readonly #queues = new Map<string, RowQueue<List, Found>>()
  /** The lists that are the first for each of their rows, if these are free. */
  #ready = new Set<Waiting<List, Found>>()
  readonly #readyAlone = new Set<Waiting<List, Found>>()
  /** The batches that are going to wait for rows, and what to call when they may. */
  readonly #readyToWait = new Map<Batch<List, Found>, () => void>()
  /** The shared batches that still have callers. */
  readonly #underWay = new Set<Batch<List, Found>>()
  #waiting = 0
  #isStarting = false

  constructor(decide: DecideTogether<List, Found>) {
    this.#decide = decide
  }

  /** @throws RatelimitError `OVERLOADED` */
  enter(list: List): Turn<Found> {
    const most = Math.max(...list.rows.map((row) => this.#queues.get(row)?.waiting.size ?? 0))
    const refusal = overload(most, this.#waiting)
    if (refusal) throw refusal
    const { rows, kind, asks } = list
    const { promise: comes, come, fail } = promised<Found | undefined>()
    const one: Waiting<List, Found> = {
      rows,
      kind,
      asks,
      list,
      come,
      fail,
      first: 0,
      hasTried: false,
      undecided: undefined,
      batch: undefined,
      isOver: false,
    }
    for (const row of rows) {
      const queue = this.#queueOf(row)
      queue.waiting.add(one)
      if (queue.waiting.size === 1) one.first++
    }
    this.#waiting++
    const isBehind = !this.#getReady(one)
    this.#startSoon()
    return {
      isBehind,
      comes,
      mayWait: () => this.#mayWait(one),
      leave: () => this.#leave(one),
      giveUp: () => this.#giveUp(one),
    }
  }

  #queueOf(row: string): RowQueue<List, Found> {
    const known = this.#queues.get(row)
    if (known) return known
    const queue: RowQueue<List, Found> = { waiting: new Set(), batch: undefined }
    this.#queues.set(row, queue)
    return queue
  }

  #getReady(one: Waiting<List, Found>): boolean {
    if (!this.#isFirst(one, undefined)) return false
    const ready = one.undecided ? this.#readyAlone : this.#ready
    ready.add(one)
    return true
  }

  /** Whether it is the first for each of its rows, and each row is free or under way with the batch. */
  #isFirst({ first, rows }: Waiting<List, Found>, batch: Batch<List, Found> | undefined): boolean {
    if (first < rows.length) return false
    return rows.every((row) => {
      const under = this.#queueOf(row).batch
      return under === undefined || under === batch
    })
  }

  /** Starts at the end of this turn of the event loop, so that its calls share a statement. */
  #startSoon(): void {
    if (this.#isStarting) return
    this.#isStarting = true
    // A promise, because fake timers such as Jest's replace queueMicrotask.
    Promise.resolve().then(() => {
      this.#isStarting = false
      this.#start()
    })
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
    while (this.#isWorthOne() && this.#shared.hasRoom()) this.#sendTogether()
  }

  #isWorthOne(): boolean {
    let lists = 0
    for (const batch of this.#underWay) lists += batch.lists.length
    return isWorthOne(this.#ready.size, lists)
  }

  #openBatch(slots: Slots): Batch<List, Found> {
    const batch = { lists: [], slots }
    slots.take(batch)
    return batch
  }

  #sendTogether(): void {
    const batch = this.#openBatch(this.#shared)
    this.#underWay.add(batch)
    let fitting: FittingLists<Waiting<List, Found>> | undefined
    for (const ready of this.#ready) {
      const candidates = [ready]
      for (const one of candidates) {
        if (fitting && !fitting.add(one)) continue
        fitting ??= new FittingLists(one)
        const next = this.#addTo(one, batch)
        candidates.push(...next.filter((each) => !each.undecided && this.#isFirst(each, batch)))
      }
      if (fitting?.isFull) break
    }
    // A set that lives long would keep lists in memory that it has no more: V8 links each old table of a set to
    // the next one, and an old table that outlives a minor collection keeps all later ones until a full one.
    this.#ready = new Set(this.#ready)
    const lists = batch.lists.map(({ list }) => list)
    this.#decide(lists, fitting?.isCommon ?? []).then(
      (verdicts) => this.#decided(batch, verdicts),
      (error) => {
        for (const one of batch.lists) one.fail(error)
        this.#end(batch)
      },
    )
  }

  /** Moves it from the queues of its rows into the batch. Returns the lists that are next. */
  #addTo(one: Waiting<List, Found>, batch: Batch<List, Found>): readonly Waiting<List, Found>[] {
    this.#waiting--
    one.batch = batch
    batch.lists.push(one)
    for (const row of one.rows) this.#queueOf(row).batch = batch
    return this.#dequeue(one)
  }

  /** Removes it from the queues of its rows. Returns the lists that are now the first of one of them. */
  #dequeue(one: Waiting<List, Found>): readonly Waiting<List, Found>[] {
    this.#ready.delete(one)
    this.#readyAlone.delete(one)
    const found = new Set<Waiting<List, Found>>()
    for (const row of one.rows) {
      const { waiting } = this.#queueOf(row)
      const [first] = waiting
      waiting.delete(one)
      const [next] = waiting
      if (first !== one || !next) continue
      next.first++
      found.add(next)
    }
    return [...found]
  }

  /**
   * If undecided lists have a row in common, the first one goes on alone. The others try once more to share a
   * statement: if another process held the row, it is free once the first list has had it.
   */
  #decided(batch: Batch<List, Found>, verdicts: readonly Verdict<Found>[]): void {
    const back: Waiting<List, Found>[] = []
    const waitedFor = new Set<string>()
    for (const [place, one] of batch.lists.entries()) {
      const verdict = verdicts[place]
      // A list whose caller has given up ends here, and sends nothing more.
      if (verdict?.isDecided || one.isOver) {
        one.come(verdict?.found)
        continue
      }
      const isFirst = !one.rows.some((row) => waitedFor.has(row))
      if (isFirst || one.hasTried) one.undecided = verdict ?? { found: undefined, isDecided: false }
      one.hasTried = true
      for (const row of one.rows) waitedFor.add(row)
      back.unshift(one)
    }
    for (const one of back) this.#putBack(one)
    this.#end(batch)
  }

  /** Puts it back, before all others of its rows. */
  #putBack(one: Waiting<List, Found>): void {
    one.batch = undefined
    one.first = one.rows.length
    for (const row of one.rows) {
      const queue = this.#queueOf(row)
      const [first] = queue.waiting
      if (first) first.first--
      queue.waiting = new Set([one, ...queue.waiting])
    }
    this.#waiting++
  }

  /** The batch has ended, and the lists behind it go on. */
  #end(batch: Batch<List, Found>): void {
    batch.slots.leave(batch)
    this.#free(batch)
    // The sets of slots would keep them in memory in the same way.
    batch.lists.length = 0
  }

  #free(batch: Batch<List, Found>): void {
    this.#underWay.delete(batch)
    const rows = batch.lists.flatMap((list) => list.rows)
    for (const row of rows) {
      const queue = this.#queues.get(row)
      if (queue?.batch === batch) queue.batch = undefined
    }
    for (const row of rows) this.#goOn(row)
    this.#startSoon()
  }

  #goOn(row: string): void {
    const queue = this.#queues.get(row)
    if (!queue || queue.batch) return
    const [next] = queue.waiting
    if (next) this.#getReady(next)
    else this.#queues.delete(row)
  }

  #mayWait({ batch }: Waiting<List, Found>): Promise<void> {
    if (!batch) return Promise.resolve()
    batch.slots.leave(batch)
    batch.slots = this.#patient
    this.#startSoon()
    return new Promise((resolve) => {
      this.#readyToWait.set(batch, resolve)
    })
  }

  #leave({ batch }: Waiting<List, Found>): void {
    if (batch && batch.slots !== this.#shared) this.#end(batch)
  }

  #giveUp(one: Waiting<List, Found>): void {
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
    this.#waiting--
    this.#dequeue(one)
    for (const row of one.rows) this.#goOn(row)
    if (this.#ready.size === 0) this.#shared.stopWaiting()
    if (this.#readyAlone.size === 0) this.#alone.stopWaiting()
    if (this.#readyToWait.size === 0) this.#patient.stopWaiting()
    this.#startSoon()
  }
}

function promised<T>(): {
  readonly promise: Promise<T>
  readonly come: (value: T) => void
  readonly fail: (error: unknown) => void
} {
  let [come, fail]: [(value: T) => void, (error: unknown) => void] = [() => {}, () => {}]
  const promise = new Promise<T>((resolve, reject) => {
    come = resolve
    fail = reject
  })
  return { promise, come, fail }
}
