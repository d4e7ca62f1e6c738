import { remainingOf } from '../kernel/answers/capacity.ts'
import { afterCalls } from '../kernel/answers/outcome.ts'
import { type Moment, momentBy } from '../kernel/base/moment.ts'
import type { InAdvance, Supplier } from '../kernel/engine/parts.ts'
import type { RatelimitError } from '../kernel/errors.ts'
import { sameLimiter } from '../kernel/limits/limiter.ts'
import type { Pending } from '../kernel/queue/queue.ts'
import type { Decision, Request } from '../kernel/store/call.ts'
import { Changes } from './changes.ts'
import { extraOf, Fetch, type FetchEnds, type FetchPlan } from './fetch.ts'
import { FetchedUnits, orFail } from './fetched-units.ts'
import { FetchingCall } from './fetching-call.ts'
import { HeldStocks, type Key, type PrefetchTerms } from './held-stocks.ts'
import { decisionBy, hasEnough, hasExpired, type Stock } from './stock.ts'

/**
 * Answers calls from units that the database has charged before, and brings the others to the database.
 *
 * The database is asked by ordinary calls for a larger rate that take what there is, and gets the rest back by
 * ordinary refunds. So it never grants more than without it, and no call uses units that were not charged.
 */
export class Prefetcher implements InAdvance {
  readonly #terms: PrefetchTerms
  readonly #supplier: Supplier
  readonly #held: HeldStocks
  readonly #units: FetchedUnits
  /** The calls that fetch more units, by their keys. */
  readonly #fetching = new Map<string, Fetch>()
  /** How many lists have to find all units of a key in its row. Until they end, it gets no stock. */
  readonly #withheld = new Map<string, number>()
  /** Notified when a fetch or a refund has ended. */
  readonly #ends = new Changes()
  readonly #fetchEnds: FetchEnds = {
    answered: (fetch, decision) => this.#onAnswer(fetch, decision),
    failed: (fetch, error) => this.#onError(fetch, error),
  }
  #closed: Promise<void> | undefined

  constructor(terms: PrefetchTerms, supplier: Supplier) {
    this.#terms = terms
    this.#supplier = supplier
    this.#held = new HeldStocks(terms, supplier, () => this.#ends.notify())
    this.#units = new FetchedUnits(terms, this.#held)
  }

  /** The decision on a call from memory. Undefined if the database has to decide. */
  decide(call: Request): Decision | undefined {
    if (call.purpose === 'look') return undefined
    if (!isPrefetchable(call)) {
      this.#giveUp(call.key)
      return undefined
    }
    const key = this.#held.keys.get(call.key)
    const stock = key?.stock
    // Reading the clocks takes longer than all the rest.
    if (!stock || !hasEnough(stock, call)) return undefined
    const now = this.#now()
    if (hasExpired(stock, now) || !sameLimiter(stock.limiter, call.limiter)) return undefined
    key.askedAtMs = now.steadyMs
    return decisionBy(stock, call)
  }

  add(caller: Pending): void {
    orFail(caller, () => this.#add(caller))
  }

  #add(caller: Pending): void {
    const { request } = caller
    const { dispatcher } = this.#supplier
    if (!isPrefetchable(request) || this.#closed) {
      dispatcher.add(caller)
      return
    }
    const fetching = this.#fetching.get(request.key)
    if (fetching?.letWait(caller)) return
    const now = this.#now()
    const known = this.#held.keys.get(request.key)
    const key = known ?? this.#held.remember(newKey(request.key, now), now)
    const wasAskedLately = known !== undefined && now.steadyMs - known.askedAtMs < this.#terms.forMs
    key.askedAtMs = now.steadyMs
    const plan = fetching ? undefined : this.#planFor(key, request, wasAskedLately, now)
    if (!plan) {
      dispatcher.add(this.#asking(key, caller))
      return
    }
    const fetch = new Fetch(key, caller, plan, this.#supplier.waiting, this.#fetchEnds)
    this.#fetching.set(key.key, fetch)
    dispatcher.add(fetch)
  }

  cancel(caller: Pending): boolean {
    const fetch = this.#fetching.get(caller.request.key)
    if (fetch?.caller === caller) return this.#cancelFetch(fetch)
    if (!fetch?.leave(caller)) return this.#supplier.dispatcher.cancel(caller)
    caller.isOver = true
    if (fetch.isNeeded && fetch.sharing.size === 0) {
      fetch.isNeeded = false
      this.#abandon(fetch)
    }
    return false
  }

  /** Cancels a fetch, unless it was sent for other calls too. */
  #cancelFetch(fetch: Fetch): boolean {
    if (!fetch.batch || fetch.sharing.size === 0) return this.#abandon(fetch)
    fetch.caller.isOver = true
    fetch.isNeeded = true
    return true
  }

  /** Goes on without a fetch. If it was sent, its answer may come late, or never. */
  #abandon(fetch: Fetch): boolean {
    const wasSent = this.#supplier.dispatcher.cancel(fetch.caller)
    this.#fetched(fetch)
    if (!wasSent) this.#units.keepHand(fetch)
    this.#release(fetch)
    return wasSent
  }

  /** Forgets what is left of a key's stock, because the row has been reset. */
  forget(name: string): void {
    const key = this.#held.keys.peek(name)
    if (key) key.stock = undefined
    this.#held.forget(name)
    this.#leaveRest(name, 'drop')
  }

  /**
   * Lets no call use what is left of a key's stock, because the row changes in a transaction that is not over.
   * It goes back together with the stocks that are over.
   */
  setAside(name: string): void {
    const key = this.#held.keys.peek(name)
    if (key) this.#held.setAside(key)
    this.#leaveRest(name, 'give back')
  }

  /** Waits for what is being given back, so that none of it reaches a new row of the key. It never rejects. */
  returned(): Promise<void> {
    return this.#held.returned()
  }

  /** Gives all stocks back. Calls after it prefetch nothing. It never rejects. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    for (const fetch of this.#fetching.values()) fetch.rest = 'give back'
    this.#held.close()
    await this.#ends.until(() => this.#fetching.size === 0 && !this.#held.isReturning)
  }

  /**
   * Gives a key's stock back before a list that has to find its units in the row. The key gets no stock until
   * `end` is called. `returned` never rejects.
   */
  withhold(name: string): { readonly returned: Promise<void>; end(): void } {
    const count = (more: number) => this.#withheld.set(name, (this.#withheld.get(name) ?? 0) + more)
    count(1)
    try {
      this.#giveUp(name)
    } catch {
      // An injected clock that fails must fail where the list reads it.
    }
    const isBack = () => !this.#fetching.has(name) && !this.#held.isReturningTo(name)
    const end = () => {
      if (count(-1).get(name) === 0) this.#withheld.delete(name)
    }
    return { returned: this.#ends.until(isBack), end }
  }

  #now(): Moment {
    return momentBy(this.#supplier.clock)
  }

  /** A call that asks for itself only. */
  #asking(key: Key, caller: Pending): FetchingCall {
    return new FetchingCall(caller, (decision, place) => this.#onDecision(key, caller, decision, place))
  }

  /** What a call brings along. Undefined if it asks for itself only. */
  #planFor(key: Key, request: Request, wasAskedLately: boolean, now: Moment): FetchPlan | undefined {
    const hand = this.#takeInHand(key, request, now)
    const mayStock = wasAskedLately && !this.#withheld.has(key.key) && !this.#held.hasAside(key.key)
    const wanted = mayStock ? Math.min(this.#terms.tokens, Math.max(key.size, request.rate)) : 0
    const plan = { hand, wanted, known: key.remaining + (hand?.left ?? 0), sentAt: now }
    return hand || extraOf(plan, request.rate) > 0 ? plan : undefined
  }

  /** Takes the rest of the stock, to bring it along. A stock of another plan is given back. */
  #takeInHand(key: Key, { limiter }: Request, now: Moment): Stock | undefined {
    const { stock } = key
    if (!stock) return undefined
    if (!sameLimiter(stock.limiter, limiter)) {
      this.#held.end(key, now)
      return undefined
    }
    this.#held.takeOut(key, stock, now)
    return stock.left > limiter.algorithm.tolerance ? stock : undefined
  }

  #onDecision(key: Key, caller: Pending, decision: Decision, place: number): void {
    const { request } = caller
    const isGranted = place < decision.granted
    const after = afterCalls({ call: request, decision }, Math.min(place + 1, decision.granted))
    key.remaining = remainingOf(request.limiter, after)
    // What was fetched meanwhile may suffice.
    const found = isGranted ? undefined : this.decide(request)
    caller.fulfil(found ?? decision, found ? 0 : place)
  }

  #onAnswer(fetch: Fetch, decision: Decision): void {
    this.#fetched(fetch)
    try {
      this.#units.settle(fetch, decision)
    } finally {
      this.#release(fetch)
    }
  }

  #onError(fetch: Fetch, error: RatelimitError): void {
    this.#fetched(fetch)
    this.#units.keepHand(fetch)
    fetch.caller.fail(error)
    for (const caller of fetch.sharing) {
      caller.batch = fetch.batch
      caller.fail(error)
    }
    fetch.sharing.clear()
    for (const caller of fetch.takeWaiting()) {
      orFail(caller, () => {
        // If the database is away, they fail together, and not one after the other.
        if (!this.#fulfil(caller)) this.#supplier.dispatcher.add(this.#asking(fetch.key, caller))
      })
    }
  }

  /** Notes that a fetch has ended. Until the next answer, nobody knows what is left, so no call takes more. */
  #fetched(fetch: Fetch): void {
    const { key } = fetch
    if (this.#fetching.get(key.key) === fetch) this.#fetching.delete(key.key)
    key.remaining = 0
    this.#ends.notify()
  }

  /** Answers the calls that have waited, or lets them ask. */
  #release(fetch: Fetch): void {
    for (const caller of fetch.takeWaiting()) {
      orFail(caller, () => {
        if (!this.#fulfil(caller)) this.#add(caller)
      })
    }
  }

  /** Answers the call from memory, if that is possible. */
  #fulfil(caller: Pending): boolean {
    const decision = this.decide(caller.request)
    if (decision) caller.fulfil(decision, 0)
    return decision !== undefined
  }

  /** Gives the key's stock back before a call that has to find it in the row. */
  #giveUp(name: string): void {
    const key = this.#held.keys.peek(name)
    if (key?.stock) this.#held.end(key, this.#now())
    this.#leaveRest(name, 'give back')
  }

  /** What becomes of the units that are left of what is being fetched for the key. */
  #leaveRest(name: string, rest: Fetch['rest']): void {
    const fetch = this.#fetching.get(name)
    if (fetch) fetch.rest = rest
  }
}

/** Whether a stock may answer the call. Others must find its units in the row. */
function isPrefetchable({ purpose, reserved, limiter }: Request): boolean {
  return purpose === 'take' && reserved === 0 && !limiter.algorithm.seesEachCall
}

function newKey(key: string, { steadyMs }: Moment): Key {
  return { key, stock: undefined, askedAtMs: steadyMs, size: 0, remaining: 0 }
}
