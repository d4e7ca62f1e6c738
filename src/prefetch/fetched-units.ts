import type { LRU } from 'tiny-lru'
import { remainingOf } from '../kernel/answers/capacity.ts'
import type { Moment } from '../kernel/base/moment.ts'
import { toRatelimitError } from '../kernel/database/database-error.ts'
import type { Supplier } from '../kernel/engine/parts.ts'
import type { Pending } from '../kernel/queue/queue.ts'
import type { Decision } from '../kernel/store/call.ts'
import type { Fetch } from './fetch.ts'
import { type HeldStocks, type Key, momentSince } from './held-stocks.ts'
import { settled } from './settled.ts'
import { carriedInto, decisionBy, hasEnough, type Stock } from './stock.ts'

/** How much is prefetched, and for how long. */
export interface PrefetchTerms {
  /** The most units of a key's stock. */
  readonly tokens: number
  readonly forMs: number
  /** How many keys are remembered. */
  readonly maxKeys: number
}

/** If others took more meanwhile, a process gives back at once what exceeds this share of what is left. */
const KEPT_SHARE = 1 / 5

/** What becomes of the units that fetches bring, and of those that they have in hand. */
export class FetchedUnits {
  readonly #terms: PrefetchTerms
  readonly #supplier: Supplier
  readonly #keys: LRU<Key>
  readonly #held: HeldStocks

  constructor(terms: PrefetchTerms, supplier: Supplier, keys: LRU<Key>, held: HeldStocks) {
    this.#terms = terms
    this.#supplier = supplier
    this.#keys = keys
    this.#held = held
  }

  #nowSince({ plan }: Fetch): Moment {
    return momentSince(plan.sentAt, this.#supplier.clock)
  }

  /** Gives the callers their parts of what was fetched, and keeps the rest. */
  settle(fetch: Fetch, decision: Decision): void {
    const { key, caller, plan, request } = fetch
    const { hand } = plan
    const carried = hand && fetch.rest !== 'drop' ? carriedInto(hand, decision, this.#nowSince(fetch)) : 0
    const { own, after, stock } = settled(fetch, decision, carried, this.#terms.forMs)
    key.remaining = remainingOf(request.limiter, after)
    answerCaller(caller, own)
    if (stock) {
      this.#share(fetch, stock)
      this.#stockUp(fetch, stock)
    } else if (own.granted === 0 && !decision.isOther) this.keepHand(fetch)
  }

  /** Answers the calls that were decided together with the fetch. No clock counts, as for a call alone. */
  #share({ sharing }: Fetch, stock: Stock): void {
    for (const caller of sharing) {
      if (!hasEnough(stock, caller.request)) continue
      sharing.delete(caller)
      answerCaller(caller, decisionBy(stock, caller.request))
    }
  }

  #stockUp(fetch: Fetch, stock: Stock): void {
    const { key } = fetch
    const fair = Math.floor((stock.facts.remaining + stock.left) * KEPT_SHARE)
    // Calls that have given up may leave more than a stock has.
    const kept = fetch.rest === 'keep' ? Math.min(stock.left, fair, this.#terms.tokens) : 0
    const excess = stock.left - kept
    if (excess > 0 && fetch.rest !== 'drop')
      this.#held.giveBack(key, { ...stock, left: excess }, this.#nowSince(fetch))
    stock.amount = kept
    stock.left = kept
    this.#keep(fetch, stock)
  }

  /** Keeps the units in hand. They were charged before, even if the call has failed. */
  keepHand(fetch: Fetch): void {
    const { key, plan, rest } = fetch
    const { hand } = plan
    if (hand && rest === 'keep') this.#keep(fetch, hand)
    if (hand && rest === 'give back') this.#held.giveBack(key, hand, this.#nowSince(fetch))
  }

  /** Keeps what was fetched. Its key may have been forgotten meanwhile, but its units must be found. */
  #keep(fetch: Fetch, stock: Stock): void {
    const { key } = fetch
    const known = this.#keys.peek(key.key) ?? this.remember(key, this.#nowSince(fetch))
    this.#held.keep(known, stock)
  }

  remember(key: Key, now: Moment): Key {
    const evicted = this.#keys.setWithEvicted(key.key, key)
    if (evicted?.value.stock) this.#held.end(evicted.value, now)
    return key
  }
}

function answerCaller(caller: Pending, decision: Decision): void {
  orFail(caller, () => caller.fulfil(decision, 0))
}

/**
 * Works for a caller. If the caller throws, or an injected clock fails, only this call fails, and none is left
 * waiting.
 */
export function orFail(caller: Pending, work: () => void): void {
  try {
    work()
  } catch (error) {
    caller.fail(toRatelimitError(error))
  }
}
