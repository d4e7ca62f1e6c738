import type { Moment } from '../kernel/base/moment.ts'
import type { RatelimitError } from '../kernel/errors.ts'
import { sameLimiter } from '../kernel/limits/limiter.ts'
import type { Batch, Pending } from '../kernel/queue/queue.ts'
import { overload, type WaitingCalls } from '../kernel/queue/waits.ts'
import { type Decision, neededBy, type Request } from '../kernel/store/call.ts'
import { FetchingCall } from './fetching-call.ts'
import type { Key } from './held-stocks.ts'
import type { Stock } from './stock.ts'

/** What a call may bring with it to the database, besides itself. */
export interface FetchPlan {
  /** Units in hand, which count as given back and taken again. */
  readonly hand: Stock | undefined
  /** How many units it asks for besides those of known calls, if there are enough. */
  readonly wanted: number
  /** How many units there are, as far as this process knows. */
  readonly known: number
  readonly sentAt: Moment
}

/** How a fetch ends. */
export interface FetchEnds {
  answered(fetch: Fetch, decision: Decision): void
  failed(fetch: Fetch, error: RatelimitError): void
}

/** A request whose rate is known when it is sent. */
type Changing = Omit<Request, 'rate'> & { rate: number }

/** A call asks for this share of what was left, as far as this process knows. */
const ASKED_SHARE = 1 / 10

/** A call on its way to the database that takes units for other calls along. */
export class Fetch extends FetchingCall {
  readonly mayChange = true
  readonly key: Key
  readonly plan: FetchPlan
  /** Calls of the key that came before it was sent. It asks for their units too. */
  readonly sharing: Set<Pending> = new Set()
  /** Calls of the key that came later, and wait for what it leaves. */
  readonly waiting: Set<Pending> = new Set()
  /** What becomes of the units that are left. */
  rest: 'keep' | 'give back' | 'drop' = 'keep'
  /** Whether others still need it though its caller has given up. */
  isNeeded = false
  /** The units that known calls need. */
  #needed: number
  readonly #counts: WaitingCalls
  /** How many of the other calls are counted as waiting. */
  #counted = 0
  readonly #request: Changing
  readonly #ends: FetchEnds

  constructor(key: Key, caller: Pending, plan: FetchPlan, counts: WaitingCalls, ends: FetchEnds) {
    super(caller, () => {})
    this.key = key
    this.plan = plan
    const { request } = caller
    this.#needed = request.rate
    this.#counts = counts
    this.#request = { ...request, atLeast: leastToAsk(request, plan) }
    this.#ends = ends
  }

  override get request(): Request {
    return this.#request
  }

  override get batch(): Batch | undefined {
    return super.batch
  }

  /** Asks for the units of all calls that are known when it is sent. */
  override set batch(batch: Batch | undefined) {
    super.batch = batch
    this.#request.rate = unitsToAsk(this.plan, this.caller.request.rate, this.#needed)
    this.#count()
  }

  override get isOver(): boolean {
    return this.caller.isOver && !this.isNeeded
  }

  override set isOver(isOver: boolean) {
    this.caller.isOver = isOver
  }

  /** Lets another call of the key wait for the answer, if there is room and probably enough for it. */
  letWait(other: Pending): boolean {
    if (!sameLimiter(this.#request.limiter, other.request.limiter)) return false
    if (overload(this.sharing.size + this.waiting.size, this.#counts.calls)) return false
    if (this.batch) this.waiting.add(other)
    else if (!this.#share(other)) return false
    this.#count()
    other.isContended = true
    return true
  }

  /** Counts the calls here as waiting. Those that were sent are not, as in the queues. */
  #count(): void {
    const unsent = this.waiting.size + (this.batch ? 0 : this.sharing.size)
    this.#counts.calls += unsent - this.#counted
    this.#counted = unsent
  }

  #share(other: Pending): boolean {
    const needed = this.#needed + other.request.rate
    if (this.rest !== 'keep' || needed > this.plan.known) return false
    this.sharing.add(other)
    this.#needed = needed
    return true
  }

  /** Lets a call go that has given up. Returns whether it was here. */
  leave(other: Pending): boolean {
    if (!this.waiting.delete(other)) {
      if (!this.sharing.delete(other)) return false
      // What was sent comes. It is left for others.
      if (!this.batch) this.#needed -= other.request.rate
    }
    this.#count()
    return true
  }

  /** Ends the waiting of the other calls. */
  takeWaiting(): Pending[] {
    const taken = [...this.sharing, ...this.waiting]
    this.sharing.clear()
    this.waiting.clear()
    this.#count()
    return taken
  }

  override fulfil(decision: Decision): void {
    this.#ends.answered(this, decision)
  }

  override fail(error: RatelimitError): void {
    this.#ends.failed(this, error)
  }
}

/** How many units a call asks for besides `needed`. */
export function extraOf({ wanted, known }: FetchPlan, needed: number): number {
  return Math.max(0, Math.floor(Math.min(wanted, (known - needed) * ASKED_SHARE)))
}

function unitsToAsk(plan: FetchPlan, rate: number, needed: number): number {
  const besides = needed - rate + extraOf(plan, needed) - (plan.hand?.left ?? 0)
  // If the units in hand should not count any more, this is still enough for the call itself.
  return rate + Math.max(0, besides)
}

function leastToAsk(request: Request, { hand }: FetchPlan): number {
  const least = request.limiter.algorithm.integersOnly ? 1 : MIN_UNITS
  return Math.max(neededBy(request) - (hand?.left ?? 0), Math.min(least, request.rate))
}

/** Far above the tolerance of buckets, so that something is taken. */
const MIN_UNITS = 1e-6
