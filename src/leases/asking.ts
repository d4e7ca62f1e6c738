import type { Moment } from '../base/moment.ts'
import type { RatelimitError } from '../errors.ts'
import { type Decision, neededBy, type Request } from '../runtime/call.ts'
import type { Batch, Pending } from '../runtime/queue.ts'
import type { Lease } from './lease.ts'

/** What a call brings with it to the database, besides itself. */
export interface Plan {
  readonly request: Request
  /** Units in hand, which count as given back and taken again. */
  readonly hand: Lease | undefined
  /** How many units more it asks for. */
  readonly extra: number
  readonly sentAt: Moment
}

/** A call on its way to the database, which may ask for more than its caller. */
export class Asking implements Pending {
  readonly caller: Pending
  readonly plan: Plan
  /** Calls of the key that wait for what it brings. */
  readonly waiting: Set<Pending> = new Set()
  /** What becomes of the units that are left. */
  rest: 'lease' | 'give back' | 'drop' = 'lease'
  /** The units that no waiting call needs. */
  #spare: number
  readonly #onDecision: (asking: Asking, decision: Decision, place: number) => void
  readonly #onError: (asking: Asking) => void

  constructor(
    caller: Pending,
    plan: Plan,
    onDecision: (asking: Asking, decision: Decision, place: number) => void,
    onError: (asking: Asking) => void,
  ) {
    this.caller = caller
    this.plan = plan
    this.#spare = plan.extra
    this.#onDecision = onDecision
    this.#onError = onError
  }

  /** Lets another call of the key wait, if it will probably get what it needs. */
  letWait(other: Pending): boolean {
    const { rate } = other.request
    if (rate > this.#spare || this.waiting.size >= MAX_WAITING) return false
    this.#spare -= rate
    this.waiting.add(other)
    return true
  }

  /** Ends the waiting of the other calls. */
  takeWaiting(): Pending[] {
    const taken = [...this.waiting]
    this.waiting.clear()
    return taken
  }

  get request(): Request {
    return this.plan.request
  }

  get isOver(): boolean {
    return this.caller.isOver
  }

  set isOver(isOver: boolean) {
    this.caller.isOver = isOver
  }

  get batch(): Batch | undefined {
    return this.caller.batch
  }

  set batch(batch: Batch | undefined) {
    this.caller.batch = batch
  }

  get isContended(): boolean {
    return this.caller.isContended
  }

  set isContended(isContended: boolean) {
    this.caller.isContended = isContended
  }

  hold(): void {
    this.caller.hold()
  }

  fulfil(decision: Decision, place: number): void {
    this.#onDecision(this, decision, place)
  }

  fail(error: RatelimitError): void {
    this.#onError(this)
    this.caller.fail(error)
  }
}

/** As many as may wait in the queue of a key. */
const MAX_WAITING = 1_000

/** The call for what is needed besides `inHand`, and for up to `extra` more. */
export function requestFor(request: Request, inHand: number, extra: number): Request {
  if (inHand === 0 && extra === 0) return request
  const { rate, limiter } = request
  const least = limiter.algorithm.integersOnly ? 1 : MIN_UNITS
  return {
    ...request,
    // If the units in hand should not count any more, this is still enough.
    rate: rate + Math.max(0, extra - inHand),
    atLeast: Math.max(neededBy(request) - inHand, Math.min(least, rate)),
  }
}

/** Far above the tolerance of buckets, so that something is taken. */
const MIN_UNITS = 1e-6
