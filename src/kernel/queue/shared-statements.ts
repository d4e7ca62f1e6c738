import { ConnectionSlots } from './slots.ts'

/** What is ready to be sent and can share a statement. */
export interface Kind<Item> {
  readonly name: string
  items: Set<Item>
  /** How many statements had been sent when it came, or when the last one of its own was sent. */
  sentBefore: number
}

/** What can be ready to be sent. */
export interface CanBeReady<Item> {
  /** The name of its kind. It may change while it waits. */
  readonly kind: string
  /** The kind that it is one of, while it is ready. */
  ready: Kind<Item> | undefined
}

/** A statement that is under way. */
interface UnderWay {
  readonly kind: string
  readonly size: number
  readonly sentAt: number
}

/** This many items are always worth a statement. */
const WORTH_ONE = 24

/** With this many for each slot, a burst goes to all free slots. */
const WORTH_ALL = 128

/** What takes longer keeps nothing waiting: the function of a ledger waits, or the connection is dead. */
const SLOW_MS = 50

/**
 * Statements that what is ready shares with others of its kind. So many may be under way at once.
 *
 * While the server works on one, more collects for the next one, so that the server and this process work at
 * the same time. The kind with the most goes first. A few of another kind wait for more of theirs, but for no
 * more than one statement of each other kind.
 */
export class SharedStatements<Item extends CanBeReady<Item>> extends ConnectionSlots {
  readonly #send: (kind: Kind<Item>, most: number) => void
  /** By name. The one that waits for longest is first. There is no empty one. */
  readonly #kinds = new Map<string, Kind<Item>>()
  /** Those that still have callers. */
  readonly #underWay = new Map<object, UnderWay>()
  #sent = 0

  /** @param send Removes items of the kind, and calls `begin` for their statement. At least one is removed. */
  constructor(connections: number, send: (kind: Kind<Item>, most: number) => void) {
    super(connections, () => this.start())
    this.#send = send
  }

  add(item: Item): void {
    const name = item.kind
    const kind = this.#kinds.get(name) ?? { name, items: new Set(), sentBefore: this.#sent }
    kind.items.add(item)
    item.ready = kind
    this.#kinds.set(name, kind)
  }

  remove(item: Item): void {
    const { ready } = item
    item.ready = undefined
    ready?.items.delete(item)
    if (ready?.items.size === 0) this.#kinds.delete(ready.name)
    if (this.#kinds.size === 0) this.stopWaiting()
  }

  /** Sends what is worth a statement, as long as there are slots. */
  start(): void {
    for (let kind = this.#next(); kind; kind = this.#next()) {
      if (!this.hasRoom()) return
      this.#send(kind, this.#shareOf(kind))
      this.#wasSent(kind)
    }
    if (this.#kinds.size > 0) this.wait(SLOW_MS)
  }

  /**
   * The kind to send next. Undefined if none is worth a statement: if all are fewer than `WORTH_ONE` and than
   * those under way. With few callers, no call waits for the answer of another.
   */
  #next(): Kind<Item> | undefined {
    const [longest] = this.#kinds.values()
    if (!longest) return undefined
    let most = longest
    for (const kind of this.#kinds.values()) if (kind.items.size > most.items.size) most = kind
    if (most.items.size < Math.min(this.#beside(most), WORTH_ONE)) return undefined
    return longest.sentBefore < this.#sent ? longest : most
  }

  /**
   * How many of the kind go into its next statement. It is all of them in most cases.
   *
   * If none is under way, many are sent in two halves. While the server works on one half, this process works
   * on the answers of the other. The callers of a half ask again together, so the halves stay apart.
   */
  #shareOf(kind: Kind<Item>): number {
    const [ready, free] = [kind.items.size, this.free]
    const share = Math.max(Math.ceil(ready / free), WORTH_ALL)
    const splits = this.#beside(kind) === 0 && free > 1 && ready >= 2 * WORTH_ONE
    return splits ? Math.min(share, Math.ceil(ready / 2)) : share
  }

  /**
   * How many of the kind are under way. A statement with many of another kind counts too, because its callers
   * may next ask for this kind.
   */
  #beside({ name }: Kind<Item>): number {
    if (this.#underWay.size === 0) return 0
    const now = performance.now()
    let beside = 0
    for (const { kind, size, sentAt } of this.#underWay.values()) {
      const counts = size >= WORTH_ONE || kind === name
      if (counts && now - sentAt < SLOW_MS) beside += size
    }
    return beside
  }

  /**
   * Puts what is left of a kind that was sent behind all others.
   *
   * A set that lives long would keep items in memory that it has no more: V8 links each old table of a set to
   * the next one, and an old table that outlives a minor collection keeps all later ones until a full one.
   */
  #wasSent(kind: Kind<Item>): void {
    this.#sent++
    kind.sentBefore = this.#sent
    kind.items = new Set(kind.items)
    if (this.#kinds.get(kind.name) !== kind) return
    this.#kinds.delete(kind.name)
    this.#kinds.set(kind.name, kind)
  }

  begin(batch: object, kind: string, size: number): void {
    this.take(batch)
    this.#underWay.set(batch, { kind, size, sentAt: performance.now() })
  }

  override leave(batch: object): void {
    super.leave(batch)
    this.#underWay.delete(batch)
  }

  override abandon(batch: object): void {
    super.abandon(batch)
    this.#underWay.delete(batch)
  }
}
