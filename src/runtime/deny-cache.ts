import { LRUCache } from 'lru-cache'
import type { RateLimitTable } from '../../schema/index.ts'
import { availableOf, type Denied, denialOf, wholeUnits } from '../answer.ts'
import { shapeOf } from '../database/ddl.ts'
import type { Call, Decision, Namespace } from './decide.ts'
import { sameLimiter } from './queue.ts'

/** What the database said to a call, and when it said so: no later than `saidAt` by the clock that is asked here. */
interface Denial {
  readonly call: Call
  readonly decision: Decision
  readonly saidAt: number
  /** From here on the database may say something else. */
  readonly until: number
}

/**
 * Remembers denials, so that repeated ones need no database.
 *
 * A denial holds until its rate fits, or until one more unit has come, by this process' monotonic clock or by the injected one. It was
 * said after its call was sent and before it was received: it ends as if it had been the first, and the time that is left is told as if
 * it had been the last. What other processes take or give back meanwhile is not seen.
 */
export class DenyCache {
  readonly #table: RateLimitTable
  readonly #namespace: Namespace
  readonly #denials: LRUCache<string, Denial>
  /** What was sent before it may have been overtaken by a refund. */
  #forgotAt = Number.NEGATIVE_INFINITY

  constructor(table: RateLimitTable, namespace: Namespace, maxBlockedKeys: number) {
    this.#table = table
    this.#namespace = namespace
    this.#denials = new LRUCache({ max: maxBlockedKeys })
    const ref = new WeakRef(this)
    living.add(ref)
    gone.register(this, ref)
  }

  /** The denial that the database would give to this call; nothing where it has to be asked. */
  answer(call: Call): Denied | undefined {
    const denial = this.#denials.get(call.key)
    if (!denial) return undefined
    const { decision, saidAt, until } = denial
    const now = this.#namespace.clock() ?? performance.now()
    const holds = now >= saidAt && now < until
    if (!holds || call.rate < denial.call.rate || !sameLimiter(call.limiter, denial.call.limiter))
      return undefined
    const denied = denialOf(call, decision)
    return { ...denied, retryAfter: denied.retryAfter - Math.floor(now - saidAt) }
  }

  /** Learns that the database granted the call, or denied it, which was sent at these times. */
  learn(
    call: Call,
    decision: Decision,
    granted: boolean,
    { sentAt, clock }: { readonly sentAt: number; readonly clock: number | null },
  ): void {
    // A look changes nothing.
    if (call.rate === 0) return
    this.#denials.delete(call.key)
    if (granted || sentAt <= this.#forgotAt) return
    const { algorithm } = call.limiter
    const { state, now, params } = decision
    const oneMore = wholeUnits(availableOf(call.limiter, decision)) + 1
    const changesAt = Math.min(
      algorithm.fitsAt(state, now, call.rate, params),
      algorithm.fitsAt(state, now, oneMore, params),
    )
    const injected = clock !== null
    this.#denials.set(call.key, {
      ...{ call, decision },
      saidAt: injected ? now : performance.now(),
      until: (injected ? now : sentAt) + changesAt - now,
    })
  }

  forget(table: RateLimitTable, prefix: string, key: string): void {
    if (shapeOf(table).quoted !== shapeOf(this.#table).quoted || prefix !== this.#namespace.prefix) return
    this.#denials.delete(key)
    this.#forgotAt = performance.now()
  }
}

const living = new Set<WeakRef<DenyCache>>()
const gone = new FinalizationRegistry<WeakRef<DenyCache>>((ref) => living.delete(ref))

/** Has every limiter of this process ask the database about a key to which something was given back. */
export function forgetDenials(table: RateLimitTable, prefix: string, key: string): void {
  for (const ref of living) ref.deref()?.forget(table, prefix, key)
}
