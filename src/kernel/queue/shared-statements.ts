import { ConnectionSlots } from './slots.ts'

/** What is ready to be sent and can share a statement. */
export interface Kind<Like, Item> {
  /** What its items are like, or were when they came. */
  readonly like: Like
  items: Set<Item>
  /** How many statements had been sent when it came, or when the last one of its own was sent. */
  sentBefore: number
}

/** What can be ready to be sent. */
export interface CanBeReady<Like, Item> {
  readonly like: Like
  /** Its kind, while it is ready. */
  ready: Kind<Like, Item> | undefined
}

/** A statement that is under way. */
interface UnderWay<Like> {
  readonly like: Like
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
export class SharedStatements<Like, Item extends CanBeReady<Like, Item>> extends ConnectionSlots {
  readonly areAlike: (one: Like, other: Like) => boolean
  readonly #send: (kind: Kind<Like, Item>, most: number) => void
  /** The one that waits for longest is first. There is no empty one. */
  readonly #kinds = new Set<Kind<Like, Item>>()
  /** Those that still have callers. */
  readonly #underWay = new Map<object, UnderWay<Like>>()
  #sent = 0

  /** @param send Removes items of the kind, and calls `begin` for their statement. At least one is removed. */
  constructor(
    connections: number,
    areAlike: (one: Like, other: Like) => boolean,
    send: (kind: Kind<Like, Item>, most: number) => void,
  ) {
    super(connections, () => this.start())
    this.areAlike = areAlike
    this.#send = send
  }

  add(item: Item): void {
    const kind = this.#kindOf(item.like)
    kind.items.add(item)
    item.ready = kind
    this.#kinds.add(kind)
  }

  #kindOf(like: Like): Kind<Like, Item> {
    for (const kind of this.#kinds) if (this.areAlike(kind.like, like)) return kind
    return { like, items: new Set(), sentBefore: this.#sent }
  }

  remove(item: Item): void {
    const { ready } = item
    item.ready = undefined
    ready?.items.delete(item)
    if (ready?.items.size === 0) this.#kinds.delete(ready)
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
  #next(): Kind<Like, Item> | undefined {
    const [longest] = this.#kinds
    if (!longest) return undefined
    let most = longest
    for (const kind of this.#kinds) if (kind.items.size > most.items.size) most = kind
    if (most.items.size < Math.min(this.#beside(most), WORTH_ONE)) return undefined
    return longest.sentBefore < this.#sent ? longest : most
  }

  /**
   * How many of the kind go into its next statement. It is all of them in most cases.
   *
   * If none is under way, many are sent in two halves. While the server works on one half, this process works
   * on the answers of the other. The callers of a half ask again together, so the halves stay apart.
   */
  #shareOf(kind: Kind<Like, Item>): number {
    const [ready, free] = [kind.items.size, this.free]
    const share = Math.max(Math.ceil(ready / free), WORTH_ALL)
    const splits = this.#beside(kind) === 0 && free > 1 && ready >= 2 * WORTH_ONE
    return splits ? Math.min(share, Math.ceil(ready / 2)) : share
  }

  /**
   * How many of the kind are under way. A statement with many of another kind counts too, because its callers
   * may next ask for this kind.
   */
  #beside({ like }: Kind<Like, Item>): number {
    if (this.#underWay.size === 0) return 0
    const now = performance.now()
    let beside = 0
    for (const { like: other, size, sentAt } of this.#underWay.values()) {
      const counts = size >= WORTH_ONE || this.areAlike(like, other)
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
  #wasSent(kind: Kind<Like, Item>): void {
    this.#sent++
    kind.sentBefore = this.#sent
    kind.items = new Set(kind.items)
    if (this.#kinds.delete(kind)) this.#kinds.add(kind)
  }

  begin(batch: object, like: Like, size: number): void {
    this.take(batch)
    this.#underWay.set(batch, { like, size, sentAt: performance.now() })
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
