import { type LRU, lru } from 'tiny-lru'
import { sameLimiter } from '../algorithms/limiter.ts'
import { allowanceOf } from '../answers/answer.ts'
import { remainingOf } from '../answers/capacity.ts'
import { afterCalls, paymentOf } from '../answers/outcome.ts'
import { type Moment, momentBy, momentSince } from '../base/moment.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { type Decision, neededBy, type Request } from '../runtime/call.ts'
import type { Dispatcher, Pending } from '../runtime/queue.ts'
import { Asking, requestFor } from './asking.ts'
import { HeldLeases, type Key, type Returning } from './held-leases.ts'
import { carriedInto, decisionBy, isOver, type Lease, lastingMs } from './lease.ts'

/** The terms of leases. */
export interface Terms {
  /** The most units of a lease. */
  readonly tokens: number
  readonly forMs: number
  /** How many keys are remembered. */
  readonly maxKeys: number
}

/** What the leases of a limiter need of it. */
export interface Lessor extends Returning {
  readonly terms: Terms
  /** Decides calls that no lease answers. */
  readonly dispatcher: Dispatcher
}

/** A call asks for this share of what was left, as far as this process knows. */
const ASKED_SHARE = 1 / 10

/** If others took more meanwhile, a process gives back at once what exceeds this share of what is left. */
const KEPT_SHARE = 1 / 5

/**
 * Answers calls from units that the database has charged before, and brings the others to the database.
 *
 * The database is asked by ordinary calls for a larger rate that take what there is, and gets the rest back by
 * ordinary refunds. So it never grants more than without leases, and no call uses units that were not charged.
 */
export class Leases implements Dispatcher {
  readonly #lessor: Lessor
  readonly #keys: LRU<Key>
  readonly #held: HeldLeases
  readonly #fetching = new Set<Asking>()
  /** How many lists have to find all units of a key in its row. Until they end, no lease of it begins. */
  readonly #withheld = new Map<string, number>()
  /** Called when the next fetch or refund has ended. */
  #onEnd: (() => void)[] = []
  #closed: Promise<void> | undefined

  constructor(lessor: Lessor) {
    this.#lessor = lessor
    this.#keys = lru(lessor.terms.maxKeys)
    this.#held = new HeldLeases(lessor, lessor.terms.forMs, () => this.#ended())
  }

  /** The decision on a call from memory. Undefined if the database has to decide. */
  decide(call: Request): Decision | undefined {
    const key = this.#keys.get(call.key)
    if (!key || call.purpose === 'look') return undefined
    if (!isLeasable(call)) {
      this.#giveUp(key)
      return undefined
    }
    const { lease } = key
    if (!lease) return undefined
    const now = this.#now()
    if (isOver(lease, now) || !sameLimiter(lease.limiter, call.limiter)) return undefined
    key.askedAtMs = now.steadyMs
    return decisionBy(lease, call)
  }

  add(caller: Pending): void {
    this.#orFail(caller, () => this.#add(caller))
  }

  #add(caller: Pending): void {
    const { request } = caller
    const { dispatcher } = this.#lessor
    if (!isLeasable(request) || this.#closed) {
      dispatcher.add(caller)
      return
    }
    const now = this.#now()
    const known = this.#keys.get(request.key)
    const key = known ?? this.#remember(request.key, now)
    const wasAskedLately = known !== undefined && now.steadyMs - known.askedAtMs < this.#lessor.terms.forMs
    key.askedAtMs = now.steadyMs
    if (key.fetching) {
      const isAlike = sameLimiter(key.fetching.request.limiter, request.limiter)
      if (isAlike && key.fetching.letWait(caller)) return
      dispatcher.add(this.#asking(key, caller, { request, hand: undefined, extra: 0, sentAt: now }))
      return
    }
    const hand = this.#takeInHand(key, request, now)
    const extra = wasAskedLately ? this.#extraFor(key, request, hand?.left ?? 0) : 0
    const asking = this.#asking(key, caller, {
      request: requestFor(request, hand?.left ?? 0, extra),
      ...{ hand, extra, sentAt: now },
    })
    if (hand || extra > 0) {
      key.fetching = asking
      this.#fetching.add(asking)
    }
    dispatcher.add(asking)
  }

  cancel(caller: Pending): boolean {
    const key = this.#keys.peek(caller.request.key)
    const fetching = key?.fetching
    if (fetching?.waiting.delete(caller)) {
      caller.isOver = true
      return false
    }
    const wasSent = this.#lessor.dispatcher.cancel(caller)
    if (key && fetching?.caller === caller) {
      // If it was sent, its answer may come late, or never.
      this.#fetched(key, fetching)
      if (!wasSent) this.#keepHand(key, fetching)
      this.#release(fetching)
    }
    return wasSent
  }

  /** Forgets what is left of a key's lease, because the row has been reset. */
  forget(name: string): void {
    const key = this.#keys.peek(name)
    if (!key) return
    this.#held.drop(key)
    if (key.fetching) key.fetching.rest = 'drop'
  }

  /**
   * Lets no call use what is left of a key's lease, because the row changes in a transaction that is not over.
   * It goes back together with the leases that are over.
   */
  setAside(name: string): void {
    const key = this.#keys.peek(name)
    if (!key) return
    this.#held.setAside(key)
    if (key.fetching) key.fetching.rest = 'give back'
  }

  /** Waits for what is being given back, so that none of it reaches a new row of the key. It never rejects. */
  returned(): Promise<void> {
    return this.#held.returned()
  }

  /** Gives all leases back. Calls after it take none. It never rejects. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    for (const asking of this.#fetching) asking.rest = 'give back'
    this.#held.close()
    await this.#until(() => this.#fetching.size === 0 && !this.#held.isReturning)
  }

  /**
   * Gives a key's lease back before a list that has to find its units in the row. No lease of the key begins
   * until `end` is called. `returned` never rejects.
   */
  withhold(name: string): { readonly returned: Promise<void>; end(): void } {
    this.#withheld.set(name, (this.#withheld.get(name) ?? 0) + 1)
    const end = () => {
      const others = (this.#withheld.get(name) ?? 0) - 1
      if (others > 0) this.#withheld.set(name, others)
      else this.#withheld.delete(name)
    }
    const key = this.#keys.peek(name)
    try {
      if (key) this.#giveUp(key)
    } catch {
      // An injected clock that fails must fail where the list reads it.
    }
    const isBack = () => key?.fetching === undefined && !this.#held.isReturningTo(name)
    return { returned: this.#until(isBack), end }
  }

  async #until(isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      await new Promise<void>((resolve) => {
        this.#onEnd.push(resolve)
      })
    }
  }

  #ended(): void {
    for (const resolve of this.#onEnd.splice(0)) resolve()
  }

  #now(): Moment {
    return momentBy(this.#lessor.clock)
  }

  #nowSince({ plan }: Asking): Moment {
    return momentSince(plan.sentAt, this.#lessor.clock)
  }

  /** Works for a caller. An injected clock that fails then fails only this call, and leaves none waiting. */
  #orFail(caller: Pending, work: () => void): void {
    try {
      work()
    } catch (error) {
      caller.fail(toRatelimitError(error))
    }
  }

  #remember(name: string, now: Moment): Key {
    const key: Key = {
      ...{ key: name, lease: undefined, fetching: undefined, askedAtMs: now.steadyMs },
      ...{ size: 0, remaining: Number.POSITIVE_INFINITY },
    }
    const evicted = this.#keys.setWithEvicted(name, key)
    if (evicted?.value.lease) this.#held.end(evicted.value, now)
    return key
  }

  #asking(key: Key, caller: Pending, plan: Asking['plan']): Asking {
    return new Asking(
      caller,
      plan,
      (asking, decision, place) => this.#onDecision(key, asking, decision, place),
      (asking) => this.#onError(key, asking),
    )
  }

  /** Takes the rest of the lease, to bring it along. A lease of another plan is given back. */
  #takeInHand(key: Key, { limiter }: Request, now: Moment): Lease | undefined {
    const { lease } = key
    if (!lease) return undefined
    if (!sameLimiter(lease.limiter, limiter)) {
      this.#held.end(key, now)
      return undefined
    }
    this.#held.takeOut(key, lease, now)
    return lease.left > limiter.algorithm.tolerance ? lease : undefined
  }

  #extraFor(key: Key, { rate }: Request, inHand: number): number {
    if (this.#withheld.has(key.key)) return 0
    const fair = (key.remaining + inHand - rate) * ASKED_SHARE
    return Math.max(0, Math.floor(Math.min(this.#lessor.terms.tokens, Math.max(key.size, rate), fair)))
  }

  #onDecision(key: Key, asking: Asking, decision: Decision, place: number): void {
    const { plan, caller } = asking
    if (plan.extra === 0 && !plan.hand) {
      const isGranted = place < decision.granted
      const after = afterCalls({ call: plan.request, decision }, Math.min(place + 1, decision.granted))
      key.remaining = remainingOf(plan.request.limiter, after)
      // What was fetched meanwhile may suffice.
      const found = isGranted ? undefined : this.decide(caller.request)
      caller.fulfil(found ?? decision, found ? 0 : place)
      return
    }
    this.#fetched(key, asking)
    try {
      this.#settle(key, asking, decision, place)
    } finally {
      this.#release(asking)
    }
  }

  #onError(key: Key, asking: Asking): void {
    this.#fetched(key, asking)
    this.#keepHand(key, asking)
    for (const caller of asking.takeWaiting()) {
      this.#orFail(caller, () => {
        if (this.#fulfil(caller)) return
        // If the database is away, they fail together, and not one after the other.
        const { request } = caller
        this.#lessor.dispatcher.add(
          this.#asking(key, caller, { request, hand: undefined, extra: 0, sentAt: asking.plan.sentAt }),
        )
      })
    }
  }

  /** Keeps the units in hand. They were charged before, even if the call has failed. */
  #keepHand(key: Key, asking: Asking): void {
    const { plan, rest } = asking
    const { hand } = plan
    if (hand && rest === 'lease') this.#held.keep(key, hand)
    if (hand && rest === 'give back') this.#held.giveBack(key, hand, this.#nowSince(asking))
  }

  /** Notes that a fetch has ended. */
  #fetched(key: Key, asking: Asking): void {
    this.#fetching.delete(asking)
    if (key.fetching === asking) key.fetching = undefined
    this.#ended()
  }

  /** Gives the caller its part of what was fetched, and keeps the rest. */
  #settle(key: Key, asking: Asking, decision: Decision, place: number): void {
    const { caller, plan } = asking
    const { request, hand, sentAt } = plan
    const { algorithm } = request.limiter
    const outcome = { call: request, decision, place }
    const isGranted = place < decision.granted
    const before = afterCalls(outcome, Math.min(place, decision.granted))
    const after = afterCalls(outcome, Math.min(place + 1, decision.granted))
    const carried = hand && asking.rest !== 'drop' ? carriedInto(hand, before, this.#nowSince(asking)) : 0
    const has = carried + (isGranted ? paymentOf(outcome).rate : 0)
    const { rate } = caller.request
    const isEnough = has + algorithm.tolerance >= neededBy(caller.request) && !decision.isOther
    const left = has - (isEnough ? Math.min(has, rate) : 0)
    // Counts as if the units in hand had been given back. A bucket may get fewer of them at the time of
    // `retryAfter`.
    const counts = carried > 0 && (isEnough || algorithm.kind === 'window')
    const own: Decision = {
      ...decision,
      state: counts
        ? algorithm.numbers.consume(before.state, before.now, -carried, before.params, 0)
        : before.state,
      granted: isEnough ? 1 : 0,
    }
    key.remaining = remainingOf(request.limiter, after)
    if (isGranted || (isEnough && left > 0)) {
      const { limit, remaining, reset } = allowanceOf(outcome, { thresholds: [], dryRun: false })
      const { forMs } = this.#lessor.terms
      this.#leaseOut(key, asking, {
        limiter: request.limiter,
        ...{ amount: left, left, sentAt, lastsMs: lastingMs(request.limiter, after, forMs) },
        ...{ charged: after, decision: { ...own, granted: 1 }, facts: { limit, remaining, reset } },
      })
    } else if (!isEnough && !decision.isOther) this.#keepHand(key, asking)
    caller.fulfil(own, 0)
  }

  #leaseOut(key: Key, asking: Asking, lease: Lease): void {
    const fair = Math.floor((lease.facts.remaining + lease.left) * KEPT_SHARE)
    const kept = asking.rest === 'lease' ? Math.min(lease.left, fair) : 0
    const excess = lease.left - kept
    if (excess > 0 && asking.rest !== 'drop')
      this.#held.giveBack(key, { ...lease, left: excess }, this.#nowSince(asking))
    this.#held.keep(key, { ...lease, amount: kept, left: kept })
  }

  /** Answers the calls that have waited, or lets them ask. */
  #release(asking: Asking): void {
    for (const caller of asking.takeWaiting()) {
      this.#orFail(caller, () => {
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

  /** Gives the key's lease back before a call that has to find it in the row. */
  #giveUp(key: Key): void {
    if (key.lease) this.#held.end(key, this.#now())
    if (key.fetching) key.fetching.rest = 'give back'
  }
}

/** Whether a lease may answer the call. Others must find in the row what is leased. */
function isLeasable({ purpose, reserved, limiter }: Request): boolean {
  return purpose === 'take' && reserved === 0 && !limiter.algorithm.excludesLeases
}
