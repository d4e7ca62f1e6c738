import { batchShare, isWorthOne, WORTH_ONE } from './slots.ts'

/** What is ready to be sent and can share a statement. */
export interface Kind<Like, Item> {
  /** What its items were like when they came. */
  readonly like: Like
  items: Set<Item>
  /** How many statements had been sent when it came, or when the last one of its own was sent. */
  sentBefore: number
}

/** What can be ready to be sent. */
export interface CanBeReady<Like, Item> {
  /** Its kind, while it is ready. */
  ready: Kind<Like, Item> | undefined
}

/** A statement that is under way. */
export interface UnderWay<Like> {
  readonly like: Like
  readonly size: number
}

/**
 * What is ready to be sent, by kinds. The kind with the most goes first. A few of another kind wait for more of
 * theirs, but for no more than one statement of each other kind.
 */
export class Kinds<Like, Item extends CanBeReady<Like, Item>> {
  readonly areAlike: (one: Like, other: Like) => boolean
  /** The one that waits for longest is first. There is no empty one. */
  readonly #kinds = new Set<Kind<Like, Item>>()
  #sent = 0

  constructor(areAlike: (one: Like, other: Like) => boolean) {
    this.areAlike = areAlike
  }

  get isEmpty(): boolean {
    return this.#kinds.size === 0
  }

  add(item: Item, like: Like): void {
    const kind = this.#kindOf(like)
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
  }

  /** The kind to send next. Undefined if none is worth a statement. */
  next(underWay: Iterable<UnderWay<Like>>): Kind<Like, Item> | undefined {
    const [longest] = this.#kinds
    let most = longest
    for (const kind of this.#kinds) if (most && kind.items.size > most.items.size) most = kind
    if (!longest || !most || !isWorthOne(most.items.size, this.#beside(most, underWay))) return undefined
    return longest.sentBefore < this.#sent ? longest : most
  }

  /** How many of the kind go into its next statement. */
  shareOf(kind: Kind<Like, Item>, underWay: Iterable<UnderWay<Like>>, freeSlots: number): number {
    return batchShare(kind.items.size, this.#beside(kind, underWay), freeSlots)
  }

  /**
   * Puts what is left of a kind that was sent behind all others.
   *
   * A set that lives long would keep items in memory that it has no more: V8 links each old table of a set to
   * the next one, and an old table that outlives a minor collection keeps all later ones until a full one.
   */
  wasSent(kind: Kind<Like, Item>): void {
    this.#sent++
    kind.sentBefore = this.#sent
    kind.items = new Set(kind.items)
    if (this.#kinds.delete(kind)) this.#kinds.add(kind)
  }

  /**
   * How many of the kind are under way. A statement with many of another kind counts too, because its callers
   * may next ask for this kind.
   */
  #beside({ like }: Kind<Like, Item>, underWay: Iterable<UnderWay<Like>>): number {
    let alike = 0
    let others = 0
    for (const each of underWay) {
      if (this.areAlike(like, each.like)) alike += each.size
      else if (each.size >= WORTH_ONE) others = each.size
    }
    return Math.max(alike, others)
  }
}
