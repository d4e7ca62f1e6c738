import { remainingOf } from '../kernel/answers/capacity.ts'
import { toRatelimitError } from '../kernel/database/database-error.ts'
import type { Pending } from '../kernel/queue/queue.ts'
import type { Decision } from '../kernel/store/call.ts'
import type { Fetch } from './fetch.ts'
import type { HeldStocks, PrefetchTerms } from './held-stocks.ts'
import { settled } from './settled.ts'
import { carriedInto, decisionBy, hasEnough, type Stock } from './stock.ts'

/** If others took more meanwhile, a process gives back at once what exceeds this share of what is left. */
const KEPT_SHARE = 1 / 5

/** What becomes of the units that fetches bring, and of those that they have in hand. */
export class FetchedUnits {
  readonly #terms: PrefetchTerms
  readonly #held: HeldStocks

  constructor(terms: PrefetchTerms, held: HeldStocks) {
    this.#terms = terms
    this.#held = held
  }

  /** Gives the callers their parts of what was fetched, and keeps the rest. */
  settle(fetch: Fetch, decision: Decision): void {
    const { key, caller, plan, request } = fetch
    const { hand } = plan
    const carried = hand && fetch.rest !== 'drop' ? carriedInto(hand, decision, this.#held.nowSince(plan)) : 0
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
    const { key, plan } = fetch
    const fair = Math.floor((stock.facts.remaining + stock.left) * KEPT_SHARE)
    // Calls that have given up may leave more than a stock has.
    const kept = fetch.rest === 'keep' ? Math.min(stock.left, fair, this.#terms.tokens) : 0
    const excess = stock.left - kept
    if (excess > 0 && fetch.rest !== 'drop')
      this.#held.giveBack(key, { ...stock, left: excess }, this.#held.nowSince(plan))
    stock.amount = kept
    stock.left = kept
    this.#keep(fetch, stock)
  }

  /** Keeps the units in hand. They were charged before, even if the call has failed. */
  keepHand(fetch: Fetch): void {
    const { key, plan, rest } = fetch
    const { hand } = plan
    if (hand && rest === 'keep') this.#keep(fetch, hand)
    if (hand && rest === 'give back') this.#held.giveBack(key, hand, this.#held.nowSince(plan))
  }

  /** Keeps what was fetched. Its key may have been forgotten meanwhile, but its units must be found. */
  #keep(fetch: Fetch, stock: Stock): void {
    const { key, plan } = fetch
    const known = this.#held.keys.peek(key.key) ?? this.#held.remember(key, this.#held.nowSince(plan))
    this.#held.keep(known, stock)
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
