import { LRUCache } from 'lru-cache'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Limiter } from '../algorithms/algorithm.ts'
import { sameLimiter } from '../algorithms/limiter.ts'
import { type Snapshot, whenAvailable } from '../algorithms/search.ts'
import { shapeOf } from '../database/ddl.ts'
import type { Decision, Namespace, Request } from '../runtime/call.ts'
import { after, type Denied, denialOf, remainingOf } from './answer.ts'

/** When a call was sent: by the monotonic clock, and by the injected one where there is one. */
export interface Sent {
  readonly at: number
  readonly clock: number | null
}

/** What the database said to a call, and when it said so: no later than `saidAt` by the clock that is asked here. */
interface Denial {
  readonly rate: number
  readonly limiter: Limiter
  readonly snapshot: Snapshot
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

  /** The denial that the database would give to this request; nothing where it has to be asked. */
  answer({ key, rate, limiter }: Request): Denied | undefined {
    const denial = this.#denials.get(key)
    if (!denial) return undefined
    const { snapshot, saidAt, until } = denial
    const now = this.#namespace.clock() ?? performance.now()
    const holds = now >= saidAt && now < until
    if (!holds || rate < denial.rate || !sameLimiter(limiter, denial.limiter)) return undefined
    const denied = denialOf(limiter, snapshot, rate)
    return { ...denied, retryAfter: denied.retryAfter - Math.floor(now - saidAt) }
  }

  /** Learns how the database decided a request that was sent then. */
  learn({ key, rate, limiter, purpose }: Request, decision: Decision, place: number, sent: Sent): void {
    // A look changes nothing.
    if (purpose === 'look') return
    this.#denials.delete(key)
    const granted = purpose === 'adjust' || place < decision.granted
    if (granted || sent.at <= this.#forgotAt) return
    const snapshot = after(limiter, decision, decision.granted * rate)
    const oneMore = remainingOf(limiter, snapshot) + 1
    const changesAt = Math.min(
      whenAvailable(limiter, snapshot, rate),
      whenAvailable(limiter, snapshot, oneMore),
    )
    const injected = sent.clock !== null
    this.#denials.set(key, {
      ...{ rate, limiter, snapshot },
      saidAt: injected ? snapshot.now : performance.now(),
      until: (injected ? snapshot.now : sent.at) + changesAt - snapshot.now,
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
