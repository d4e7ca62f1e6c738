import { type LRU, lru } from 'tiny-lru'
import { remainingOf } from '../answers/capacity.ts'
import { afterCalls } from '../answers/outcome.ts'
import { leastPassedMs, type Moment, momentBy, passedMs } from '../base/moment.ts'
import type { StoredLimiter } from '../limits/algorithm.ts'
import { sameLimiter } from '../limits/limiter.ts'
import { type Snapshot, whenAvailable } from '../limits/search.ts'
import { type Decision, isNeverDenied, neededBy, type Request } from '../store/call.ts'
import type { Target } from '../store/store.ts'
import { type Memory, register, type SentAt } from './denials.ts'

/** A denial by the database. `decidedAt` is the latest time at which the database may have decided it. */
interface Denial {
  readonly needed: number
  readonly limiter: StoredLimiter
  readonly snapshot: Snapshot
  readonly decidedAt: Moment
  /** So long after `decidedAt`, the database may answer differently. */
  readonly lastsMs: number
}

/**
 * Remembers denials, so that repeated ones need no database.
 *
 * A denial holds until its rate fits or one more unit is available, by the clocks of this process or by the
 * injected clock. The clock of this process that is ahead counts, because one of them stands still while the
 * machine is suspended. The database decides at an unknown time between sending and receiving. To be safe, the
 * denial ends as if it was decided when it was sent, and `retryAfter` counts as if it was decided when it was
 * received. The cache does not see what other processes take or give back meanwhile.
 */
export class DenyCache implements Memory {
  readonly rows: Target
  readonly #denials: LRU<Denial>
  /** Answers to calls that were sent before this time may be older than a refund. */
  #forgotAt = Number.NEGATIVE_INFINITY

  constructor(rows: Target, maxBlockedKeys: number) {
    this.rows = rows
    this.#denials = lru(maxBlockedKeys)
    register(this)
  }

  /** The denial that the database would give to this request. Undefined if the database has to decide. */
  decide(call: Request): Decision | undefined {
    const { key, limiter, purpose } = call
    if (purpose !== 'take') return undefined
    const denial = this.#denials.get(key)
    if (!denial) return undefined
    const { snapshot, decidedAt, lastsMs } = denial
    const now = momentBy(this.rows.namespace.clock)
    const agoMs = passedMs(decidedAt, now)
    const holds = agoMs >= 0 && agoMs < lastsMs
    if (!holds || neededBy(call) < denial.needed || !sameLimiter(limiter, denial.limiter)) return undefined
    return { ...snapshot, now: snapshot.now + Math.floor(leastPassedMs(decidedAt, now)), granted: 0 }
  }

  /** Notes when a request is sent, with the time of the injected clock. */
  begin(clock: number | null): SentAt {
    return { at: momentBy(undefined), clock }
  }

  /** Notes how the database decided a request. */
  learn(call: Request, decision: Decision, place: number, sent: SentAt): void {
    const { key, limiter, purpose, rate } = call
    // A look changes nothing.
    if (purpose === 'look') return
    this.#denials.delete(key)
    const isDenied = !isNeverDenied(purpose) && rate > 0 && place >= decision.granted
    if (!isDenied || sent.at.steadyMs <= this.#forgotAt) return
    const snapshot = afterCalls({ call, decision }, decision.granted)
    const needed = neededBy(call)
    const oneMore = remainingOf(limiter, snapshot) + 1
    const changesAt = Math.min(
      whenAvailable(limiter, snapshot, needed),
      whenAvailable(limiter, snapshot, oneMore),
    )
    const received = momentBy(undefined)
    const at = { steadyMs: snapshot.now, wallMs: snapshot.now }
    const [decidedAt, onWayMs] = sent.clock === null ? [received, passedMs(sent.at, received)] : [at, 0]
    const lastsMs = changesAt - snapshot.now - onWayMs
    this.#denials.set(key, { needed, limiter, snapshot, decidedAt, lastsMs })
  }

  forget(key: string): void {
    this.#denials.delete(key)
    this.#forgotAt = performance.now()
  }
}
