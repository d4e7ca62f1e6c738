import { isWorthOne, Places } from '../runtime/places.ts'
import { overload } from '../runtime/room.ts'
import { Batch, type Queued } from './batch.ts'

/** How many statements may have a connection of the pool: those that lists share, and those of lists alone. */
const MAX_CONNECTIONS = 4

/** What a statement found of a list, and whether that decides it. */
export interface Verdict<Found> {
  readonly found: Found | undefined
  readonly isDecided: boolean
}

/**
 * Decides lists by one statement, in their order, and waits for no row. `isCommon` says which rows all lists
 * have in common.
 */
export type DecideTogether<List, Found> = (
  lists: readonly List[],
  isCommon: readonly boolean[],
) => Promise<readonly Verdict<Found>[]>

/** A list's turn. */
export interface Turn<Found> {
  /** Whether others came before it for one of its rows and have not ended. */
  readonly isBehind: boolean
  /**
   * Resolves when the list is decided, or when it is its turn to go on alone, with what a statement found.
   * Rejects with the error of a statement that it shared.
   */
  readonly comes: Promise<Found | undefined>
  /** The list has ended. */
  leave(): void
  /** Nobody waits for the list any more. Those behind it go on, because its statement may never end. */
  giveUp(): void
}

/** A list, as those who wait are kept. */
interface Waiting<List, Found> extends Queued {
  readonly list: List
  readonly come: (found: Found | undefined) => void
  readonly fail: (error: unknown) => void
  /** In how many of its rows' lines it is the first one. */
  first: number
  /** Whether a statement has left it undecided. */
  hasTried: boolean
  /** What a statement found of it that did not decide it: it goes on alone. */
  undecided: Verdict<Found> | undefined
  /** What it is under way with. */
  trip: Trip<List, Found> | undefined
  /** Its caller waits no longer. */
  isOver: boolean
}

/** Lists that are under way: those of one statement, or one alone. */
interface Trip<List, Found> {
  readonly lists: Waiting<List, Found>[]
  readonly places: Places
}

/** The lists that wait for a row, the first one first; and those that are under way with it. */
interface Line<List, Found> {
  waiting: Set<Waiting<List, Found>>
  trip: Trip<List, Found> | undefined
}

/**
 * The turns of lists on one database: one after the other for a row, unless it is common to them. Lists that
 * are ready at the same time share a statement. What that leaves undecided goes on alone.
 */
export class Turns<List extends Queued, Found> {
  readonly #decide: DecideTogether<List, Found>
  readonly #shared = new Places(MAX_CONNECTIONS, () => this.#start())
  readonly #alone = new Places(MAX_CONNECTIONS, () => this.#start())
  readonly #lines = new Map<string, Line<List, Found>>()
  /** Those that are the first ones for each of their rows, which are free. */
  readonly #ready = new Set<Waiting<List, Found>>()
  readonly #readyAlone = new Set<Waiting<List, Found>>()
  /** The statements that somebody waits for. */
  readonly #underWay = new Set<Trip<List, Found>>()
  #waiting = 0
  #isStarting = false

  constructor(decide: DecideTogether<List, Found>) {
    this.#decide = decide
  }

  /** @throws RatelimitError `OVERLOADED` */
  enter(list: List): Turn<Found> {
    const most = Math.max(...list.rows.map((row) => this.#lines.get(row)?.waiting.size ?? 0))
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
      trip: undefined,
      isOver: false,
    }
    for (const row of rows) {
      const line = this.#lineOf(row)
      line.waiting.add(one)
      if (line.waiting.size === 1) one.first++
    }
    this.#waiting++
    const isBehind = !this.#getReady(one)
    this.#startSoon()
    return { isBehind, comes, leave: () => this.#leave(one), giveUp: () => this.#giveUp(one) }
  }

  #lineOf(row: string): Line<List, Found> {
    const known = this.#lines.get(row)
    if (known) return known
    const line: Line<List, Found> = { waiting: new Set(), trip: undefined }
    this.#lines.set(row, line)
    return line
  }

  #getReady(one: Waiting<List, Found>): boolean {
    if (!this.#isFirst(one, undefined)) return false
    const ready = one.undecided ? this.#readyAlone : this.#ready
    ready.add(one)
    return true
  }

  /** Whether it is the first one for each of its rows, and these are free or under way with the trip. */
  #isFirst({ first, rows }: Waiting<List, Found>, trip: Trip<List, Found> | undefined): boolean {
    if (first < rows.length) return false
    return rows.every((row) => {
      const under = this.#lineOf(row).trip
      return under === undefined || under === trip
    })
  }

  /** At the end of this turn of the event loop, so that its calls share a statement. */
  #startSoon(): void {
    if (this.#isStarting) return
    this.#isStarting = true
    // Fake timers, such as Jest's, replace queueMicrotask. Promises stay.
    Promise.resolve().then(() => {
      this.#isStarting = false
      this.#start()
    })
  }

  #start(): void {
    for (const one of this.#readyAlone) {
      if (!this.#alone.hasRoom()) break
      const trip = this.#depart(this.#alone)
      this.#board(one, trip)
      one.come(one.undecided?.found)
    }
    while (this.#isWorthOne() && this.#shared.hasRoom()) this.#goTogether()
  }

  #isWorthOne(): boolean {
    let lists = 0
    for (const trip of this.#underWay) lists += trip.lists.length
    return isWorthOne(this.#ready.size, lists)
  }

  #depart(places: Places): Trip<List, Found> {
    const trip = { lists: [], places }
    places.take(trip)
    return trip
  }

  #goTogether(): void {
    const trip = this.#depart(this.#shared)
    this.#underWay.add(trip)
    let batch: Batch<Waiting<List, Found>> | undefined
    for (const ready of this.#ready) {
      const candidates = [ready]
      for (const one of candidates) {
        if (batch && !batch.add(one)) continue
        batch ??= new Batch(one)
        const next = this.#board(one, trip)
        candidates.push(...next.filter((each) => !each.undecided && this.#isFirst(each, trip)))
      }
      if (batch?.isFull) break
    }
    const lists = trip.lists.map(({ list }) => list)
    this.#decide(lists, batch?.isCommon ?? []).then(
      (verdicts) => this.#decided(trip, verdicts),
      (error) => {
        for (const one of trip.lists) one.fail(error)
        this.#arrive(trip)
      },
    )
  }

  /** Takes it out of the lines of its rows, which are under way with the trip. Returns those that are next. */
  #board(one: Waiting<List, Found>, trip: Trip<List, Found>): readonly Waiting<List, Found>[] {
    this.#waiting--
    one.trip = trip
    trip.lists.push(one)
    for (const row of one.rows) this.#lineOf(row).trip = trip
    return this.#withdraw(one)
  }

  /** Takes it out of the lines of its rows. Returns those that are now the first ones of one of them. */
  #withdraw(one: Waiting<List, Found>): readonly Waiting<List, Found>[] {
    this.#ready.delete(one)
    this.#readyAlone.delete(one)
    const found = new Set<Waiting<List, Found>>()
    for (const row of one.rows) {
      const { waiting } = this.#lineOf(row)
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
   * Of those that are left undecided and have a row in common, the first one goes on alone. The others try once
   * more to share a statement: if another process held the row, it is free when the first one has had it.
   */
  #decided(trip: Trip<List, Found>, verdicts: readonly Verdict<Found>[]): void {
    const back: Waiting<List, Found>[] = []
    const waitedFor = new Set<string>()
    for (const [place, one] of trip.lists.entries()) {
      const verdict = verdicts[place]
      // One that is over ends with what was found: it sends nothing more.
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
    for (const one of back) this.#comeBack(one)
    this.#arrive(trip)
  }

  /** Puts it before all others of its rows. */
  #comeBack(one: Waiting<List, Found>): void {
    one.trip = undefined
    one.first = one.rows.length
    for (const row of one.rows) {
      const line = this.#lineOf(row)
      const [first] = line.waiting
      if (first) first.first--
      line.waiting = new Set([one, ...line.waiting])
    }
    this.#waiting++
  }

  /** The trip has ended: those behind its lists go on. */
  #arrive(trip: Trip<List, Found>): void {
    trip.places.leave(trip)
    this.#free(trip)
  }

  #free(trip: Trip<List, Found>): void {
    this.#underWay.delete(trip)
    const rows = trip.lists.flatMap((list) => list.rows)
    for (const row of rows) {
      const line = this.#lines.get(row)
      if (line?.trip === trip) line.trip = undefined
    }
    for (const row of rows) this.#goOn(row)
    this.#startSoon()
  }

  #goOn(row: string): void {
    const line = this.#lines.get(row)
    if (!line || line.trip) return
    const [next] = line.waiting
    if (next) this.#getReady(next)
    else this.#lines.delete(row)
  }

  #leave({ trip }: Waiting<List, Found>): void {
    if (trip?.places === this.#alone) this.#arrive(trip)
  }

  #giveUp(one: Waiting<List, Found>): void {
    if (one.isOver) return
    one.isOver = true
    const { trip } = one
    if (trip) {
      if (trip.lists.some(({ isOver }) => !isOver)) return
      trip.places.abandon(trip)
      this.#free(trip)
      return
    }
    this.#waiting--
    this.#withdraw(one)
    for (const row of one.rows) this.#goOn(row)
    if (this.#ready.size === 0) this.#shared.stopWaiting()
    if (this.#readyAlone.size === 0) this.#alone.stopWaiting()
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
