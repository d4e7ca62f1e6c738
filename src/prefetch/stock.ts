import type { Allowed } from '../kernel/answers/results.ts'
import { type Moment, passedMs } from '../kernel/base/moment.ts'
import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import { hasPeriods, periodFrom } from '../kernel/limits/limiter.ts'
import type { Snapshot } from '../kernel/limits/search.ts'
import type { AnswerInAdvance, Decision, Request } from '../kernel/store/call.ts'

/** Units that the database has charged for calls that may follow. */
export interface Stock {
  readonly limiter: StoredLimiter
  /** The units when it began. */
  amount: number
  /** The units that no call has used. */
  left: number
  /** Before the statement was sent. The charge was made later, so the stock never outlasts its time. */
  readonly sentAt: Moment
  readonly lastsMs: number
  /** The row after the charge. */
  readonly charged: Snapshot
  /** The state that the decision on each call that uses it has. */
  readonly decided: Snapshot
  /** What answers say about the limit. */
  readonly facts: Pick<Allowed, 'limit' | 'remaining' | 'reset'>
}

/** A stock of at most `forMs`. That of a window that ends is over with the window. */
export function lastingMs(limiter: StoredLimiter, { now, state }: Snapshot, forMs: number): number {
  if (!hasPeriods(limiter)) return forMs
  return Math.min(forMs, periodFrom(limiter, state.windowStart).end - now)
}

export function hasExpired({ sentAt, lastsMs }: Stock, now: Moment): boolean {
  return passedMs(sentAt, now) >= lastsMs
}

/** Whether enough is left for the whole rate of a call. */
export function hasEnough({ left }: Stock, { rate, limiter }: Request): boolean {
  return left + limiter.algorithm.tolerance >= rate
}

/** Uses the stock for a call that it has enough for. */
export function decisionBy(stock: Stock, { rate, limiter, atLeast }: Request): Decision {
  const { tolerance } = limiter.algorithm
  stock.left -= rate
  const { limit, remaining, reset } = stock.facts
  // Others may have taken what the row had. Only the rest of the stock is certain.
  const certain = remaining === Number.POSITIVE_INFINITY ? remaining : Math.floor(stock.left + tolerance)
  const { state, now, params } = stock.decided
  // This runs for each call, and objects made by spreads are slow to make and to read.
  const prefetched: { -readonly [Name in keyof AnswerInAdvance]: AnswerInAdvance[Name] } = {
    success: true,
    limit,
    remaining: Math.max(certain, 0),
    reset,
    retryAfter: 0,
    prefetched: true,
  }
  if (limiter.algorithm.kind === 'window') prefetched.start = state.windowStart
  if (atLeast !== null) prefetched.granted = rate
  return { state, now, params, granted: 1, prefetched }
}

/**
 * How much of the stock can be given back at a time of the database's clock.
 *
 * A window gets all units back, as long as it lasts. Of a bucket, what has refilled since the charge is lost: a
 * bucket that had not been charged might have been full, and would have refilled less. A row therefore never
 * has more than if the unused units had not been charged.
 */
function refundable({ left, limiter, charged }: Stock, nowMs: number): number {
  const { kind, numbers } = limiter.algorithm
  if (kind === 'window') return left
  const { state, params } = charged
  const refilled = numbers.available(state, nowMs, params) - numbers.available(state, charged.now, params)
  return Math.min(left, Math.max(0, left - refilled))
}

/**
 * How much of the stock counts for a call that the database has decided. The call uses all of it, unless the
 * stock is over: then the rest is prefetched again, as if it had been given back before.
 */
export function carriedInto(stock: Stock, decided: Snapshot, now: Moment): number {
  if (stock.limiter.algorithm.kind === 'window') {
    return decided.state.windowStart === stock.charged.state.windowStart ? stock.left : 0
  }
  return hasExpired(stock, now) ? refundable(stock, decided.now) : stock.left
}

/**
 * How long after a bucket's refund was worked out the database may still accept it. What refills in this time
 * is not given back.
 */
const IN_TIME_MS = 1_000

/** The call that gives `units` of the stock back. Undefined if there is nothing to give back. */
export function refundOf(stock: Stock, key: string, now: Moment): Request | undefined {
  const { limiter, charged, sentAt } = stock
  const isWindow = limiter.algorithm.kind === 'window'
  // By the database's clock it is not later than this, because the charge was made after `sentAt`.
  const latestMs = Math.ceil(charged.now + Math.max(passedMs(sentAt, now), 0) + IN_TIME_MS)
  const units = refundable(stock, latestMs)
  if (units <= limiter.algorithm.tolerance) return undefined
  return {
    key,
    limiter,
    rate: -units,
    purpose: 'adjust',
    paidWindowStart: isWindow ? charged.state.windowStart : null,
    refundableUntil: isWindow ? null : latestMs,
    within: null,
    atLeast: null,
    reserved: 0,
    // A stock is of an older plan than the row may be by now.
    refusesOther: true,
  }
}
