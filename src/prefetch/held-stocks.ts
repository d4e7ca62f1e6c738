import { type LRU, lru } from 'tiny-lru'
import { type Moment, momentBy } from '../kernel/base/moment.ts'
import type { Supplier } from '../kernel/engine/parts.ts'
import { hasExpired, refundOf, type Stock } from './stock.ts'

/** A key that was asked lately. */
export interface Key {
  readonly key: string
  stock: Stock | undefined
  /** By the monotonic clock. */
  askedAtMs: number
  /** The units of the next stock. */
  size: number
  /** What the row had left after the last decision. 0 before the first one. */
  remaining: number
}

/** How much is prefetched, and for how long. */
export interface PrefetchTerms {
  /** The most units of a key's stock. */
  readonly tokens: number
  readonly forMs: number
  /** How many keys are remembered. */
  readonly maxKeys: number
}

/** How much larger the next stock is if one was used up before its end. */
const GROWTH = 4

/** The stocks in memory. Each goes back to its row when it is over. */
export class HeldStocks {
  /** The keys that were asked lately. */
  readonly keys: LRU<Key>
  readonly #supplier: Supplier
  readonly #terms: PrefetchTerms
  readonly #onReturned: () => void
  /** The keys with a stock that has something left. The oldest stock comes first. */
  readonly #live = new Set<Key>()
  /** The keys with a stock that was set aside. A crash may lose one, so they have no other until it is over. */
  readonly #aside = new Map<string, Key>()
  /** What is being given back, and the key that gets it. */
  readonly #returning = new Map<Promise<void>, string>()
  #sweep: { readonly timer: ReturnType<typeof setTimeout>; readonly done: () => void } | undefined
  #isClosed = false

  /** @param onReturned Called when a refund has ended. */
  constructor(terms: PrefetchTerms, supplier: Supplier, onReturned: () => void) {
    this.keys = lru(terms.maxKeys)
    this.#supplier = supplier
    this.#terms = terms
    this.#onReturned = onReturned
  }

  get isReturning(): boolean {
    return this.#returning.size > 0
  }

  /** Whether something is being given back to the key. */
  isReturningTo(key: string): boolean {
    return [...this.#returning.values()].includes(key)
  }

  /** Whether a stock of the key was set aside, and is not over. */
  hasAside(key: string): boolean {
    return this.#aside.has(key)
  }

  remember(key: Key, now: Moment): Key {
    const evicted = this.keys.setWithEvicted(key.key, key)
    if (evicted?.value.stock) this.end(evicted.value, now)
    return key
  }

  /** Keeps a stock for calls that follow. */
  keep(key: Key, stock: Stock): void {
    if (key.stock) this.end(key, this.nowSince(key.stock))
    if (this.#isClosed) {
      this.giveBack(key, stock, this.nowSince(stock))
      return
    }
    key.stock = stock
    if (stock.left <= stock.limiter.algorithm.tolerance) return
    this.#live.delete(key)
    this.#live.add(key)
    this.#sweepLater()
  }

  /** Takes the stock out of memory. The next one is larger if this was used up early, or else as was used. */
  takeOut(key: Key, stock: Stock, now: Moment): void {
    key.size = hasExpired(stock, now) ? stock.amount - stock.left : GROWTH * stock.amount
    this.#drop(key)
  }

  /** Gives nothing back to a key any more, also not what was set aside. */
  forget(name: string): void {
    for (const key of this.#live) if (key.key === name) this.#drop(key)
  }

  #drop(key: Key): void {
    key.stock = undefined
    this.#live.delete(key)
    if (this.#aside.get(key.key) === key) this.#aside.delete(key.key)
  }

  /** Lets no call use what is left. It goes back together with the stocks that are over. */
  setAside(key: Key): void {
    if (this.#live.delete(key)) {
      const aside = { ...key }
      this.#live.add(aside)
      this.#aside.set(key.key, aside)
    }
    key.stock = undefined
  }

  /** Gives the stock of a key back, if it has one. */
  end(key: Key, now: Moment): void {
    const { stock } = key
    if (!stock) return
    this.takeOut(key, stock, now)
    this.giveBack(key, stock, now)
  }

  giveBack({ key }: Key, stock: Stock, now: Moment): void {
    const refund = refundOf(stock, key, now)
    if (!refund) return
    const returned = this.#supplier.giveBack(refund).then(() => {
      this.#returning.delete(returned)
      this.#onReturned()
    })
    this.#returning.set(returned, key)
    this.#supplier.goOn(returned)
  }

  /** Waits for what is being given back. It never rejects. */
  async returned(): Promise<void> {
    await Promise.all(this.#returning.keys())
  }

  /** Gives all stocks back, and keeps none after it. */
  close(): void {
    this.#isClosed = true
    this.#endAll(() => true)
    this.#stopSweeping()
  }

  #now(): Moment {
    return momentBy(this.#supplier.clock)
  }

  /**
   * The time after an answer of the database, or when it was asked if the injected clock fails: such a clock
   * must not hide the answer.
   */
  nowSince({ sentAt }: Pick<Stock, 'sentAt'>): Moment {
    try {
      return this.#now()
    } catch {
      return sentAt
    }
  }

  /** Gives back the stocks that are over. Those of about the same time share a statement. */
  #sweepLater(): void {
    if (this.#sweep) return
    const timer = setTimeout(() => {
      this.#endAll(hasExpired)
      this.#stopSweeping()
      if (this.#live.size > 0) this.#sweepLater()
    }, this.#terms.forMs)
    // It must not keep the process from ending.
    timer.unref?.()
    let done = () => {}
    this.#supplier.goOn(
      new Promise<void>((resolve) => {
        done = resolve
      }),
    )
    this.#sweep = { timer, done }
  }

  /** Ends the stocks up to the first one that `ends` does not concern. */
  #endAll(ends: (stock: Stock, now: Moment) => boolean): void {
    try {
      const now = this.#now()
      for (const key of this.#live) {
        if (key.stock && !ends(key.stock, now)) break
        this.end(key, now)
      }
    } catch {
      // An injected clock that fails must not end the process.
    }
  }

  #stopSweeping(): void {
    clearTimeout(this.#sweep?.timer)
    Promise.all(this.#returning.keys()).then(this.#sweep?.done)
    this.#sweep = undefined
  }
}
