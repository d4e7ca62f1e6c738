import { type Moment, momentBy, momentSince } from '../kernel/base/moment.ts'
import type { Request } from '../kernel/store/call.ts'
import { isOver, type Lease, refundOf } from './lease.ts'

/** A key that was asked lately. */
export interface Key {
  readonly key: string
  lease: Lease | undefined
  /** By the monotonic clock. */
  askedAtMs: number
  /** The units of the next lease. */
  size: number
  /** What the row had left after the last decision. 0 before the first one. */
  remaining: number
}

/** What the leases in memory need of their limiter. */
export interface Returning {
  readonly clock: (() => number) | undefined
  /** Sends a refund. It never rejects. */
  readonly giveBack: (refund: Request) => Promise<void>
  /** Hands work that continues after an answer to the runtime. */
  readonly goOn: (work: Promise<unknown>) => void
}

/** How much larger the next lease is if one was used up before its end. */
const GROWTH = 4

/** The leases in memory. Each goes back to its row when it is over. */
export class HeldLeases {
  readonly #lessor: Returning
  readonly #forMs: number
  readonly #onReturned: () => void
  /** The keys with a lease that has something left. The oldest lease comes first. */
  readonly #live = new Set<Key>()
  /** The keys with a lease that was set aside. A crash may lose one, so they have no other until it is over. */
  readonly #aside = new Map<string, Key>()
  /** What is being given back, and the key that gets it. */
  readonly #returning = new Map<Promise<void>, string>()
  #sweep: { readonly timer: ReturnType<typeof setTimeout>; readonly done: () => void } | undefined
  #isClosed = false

  /** @param onReturned Called when a refund has ended. */
  constructor(lessor: Returning, forMs: number, onReturned: () => void) {
    this.#lessor = lessor
    this.#forMs = forMs
    this.#onReturned = onReturned
  }

  get isReturning(): boolean {
    return this.#returning.size > 0
  }

  /** Whether something is being given back to the key. */
  isReturningTo(key: string): boolean {
    return [...this.#returning.values()].includes(key)
  }

  /** Whether a lease of the key was set aside, and is not over. */
  hasAside(key: string): boolean {
    return this.#aside.has(key)
  }

  /** Keeps a lease for calls that follow. */
  keep(key: Key, lease: Lease): void {
    if (key.lease) this.end(key, this.#nowSince(key.lease))
    if (this.#isClosed) {
      this.giveBack(key, lease, this.#nowSince(lease))
      return
    }
    key.lease = lease
    if (lease.left <= lease.limiter.algorithm.tolerance) return
    this.#live.delete(key)
    this.#live.add(key)
    this.#sweepLater()
  }

  /** Takes the lease out of memory. The next one is larger if this was used up early, or else as was used. */
  takeOut(key: Key, lease: Lease, now: Moment): void {
    key.size = isOver(lease, now) ? lease.amount - lease.left : GROWTH * lease.amount
    this.#drop(key)
  }

  /** Gives nothing back to a key any more, also not what was set aside. */
  forget(name: string): void {
    for (const key of this.#live) if (key.key === name) this.#drop(key)
  }

  #drop(key: Key): void {
    key.lease = undefined
    this.#live.delete(key)
    if (this.#aside.get(key.key) === key) this.#aside.delete(key.key)
  }

  /** Lets no call use what is left. It goes back together with the leases that are over. */
  setAside(key: Key): void {
    if (this.#live.delete(key)) {
      const aside = { ...key }
      this.#live.add(aside)
      this.#aside.set(key.key, aside)
    }
    key.lease = undefined
  }

  /** Gives the lease of a key back, if it has one. */
  end(key: Key, now: Moment): void {
    const { lease } = key
    if (!lease) return
    this.takeOut(key, lease, now)
    this.giveBack(key, lease, now)
  }

  giveBack({ key }: Key, lease: Lease, now: Moment): void {
    const refund = refundOf(lease, key, now)
    if (!refund) return
    const returned = this.#lessor.giveBack(refund).then(() => {
      this.#returning.delete(returned)
      this.#onReturned()
    })
    this.#returning.set(returned, key)
    this.#lessor.goOn(returned)
  }

  /** Waits for what is being given back. It never rejects. */
  async returned(): Promise<void> {
    await Promise.all(this.#returning.keys())
  }

  /** Gives all leases back, and keeps none after it. */
  close(): void {
    this.#isClosed = true
    this.#endAll(() => true)
    this.#stopSweeping()
  }

  #now(): Moment {
    return momentBy(this.#lessor.clock)
  }

  #nowSince({ sentAt }: Lease): Moment {
    return momentSince(sentAt, this.#lessor.clock)
  }

  /** Gives back the leases that are over. Those of about the same time share a statement. */
  #sweepLater(): void {
    if (this.#sweep) return
    const timer = setTimeout(() => {
      this.#endAll(isOver)
      this.#stopSweeping()
      if (this.#live.size > 0) this.#sweepLater()
    }, this.#forMs)
    // It must not keep the process from ending.
    timer.unref?.()
    let done = () => {}
    this.#lessor.goOn(
      new Promise<void>((resolve) => {
        done = resolve
      }),
    )
    this.#sweep = { timer, done }
  }

  /** Ends the leases up to the first one that `ends` does not concern. */
  #endAll(ends: (lease: Lease, now: Moment) => boolean): void {
    try {
      const now = this.#now()
      for (const key of this.#live) {
        if (key.lease && !ends(key.lease, now)) break
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
