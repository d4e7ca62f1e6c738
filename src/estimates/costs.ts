import type { Allowed } from '../kernel/answers/results.ts'
import type { Database } from '../kernel/database/database.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'
import { checkLimiter, checkOption, checkRate, checkTakesLimiter } from '../kernel/options/validate.ts'

// What estimates are settled with.

/** The costs of estimates: one of each, or one that all of them pay in their order. */
export type Costs =
  | { readonly each: readonly number[] }
  | {
      readonly total: number
      /** The limit that owes what all of them together do not have. */
      readonly debt: 'first' | 'last'
    }

/** The costs, and the present plans. Undefined plans are those of the estimates. */
export interface Settling {
  readonly costs: Costs
  readonly limiters?: readonly (Limiter | undefined)[] | undefined
}

/** The answer of `settle`: how estimates were settled. */
export interface SettledAll {
  /**
   * How much each limit has paid in the end, in the order of the requests. Of one cost, together that is the
   * cost, or more if a window that paid is over, because it gives nothing back. Of a list, these are the costs.
   */
  readonly granted: readonly number[]
  /** The answer of each limit. `returned` is how much it got back. */
  readonly results: readonly Allowed[]
  /** It was settled before with the same cost. Then nothing has changed, and `granted` has only zeros. */
  readonly repeated?: true
}

/** Settles what was reserved, once. */
export type Settle = (settling: Settling, tx: Database | undefined) => Promise<SettledAll>

/** The cost that the estimate at the place remembers. Of one cost each has the whole. */
export function costAt(costs: Costs, place: number): number {
  return 'each' in costs ? (costs.each[place] as number) : costs.total
}

/** Checks the costs, and settles the estimates of the calls within the `timeout` of their limiters. */
export function settlingWith(
  calls: readonly LimiterCall[],
  settle: (settling: Settling, at: At) => Promise<SettledAll>,
): Settle {
  return (settling, tx) => {
    checkSettling(calls, settling)
    const checkers = calls.map(({ checker }) => checker)
    return withinTimeout(checkers, tx, (at) => settle(settling, at))
  }
}

/** @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE` */
function checkSettling(calls: readonly LimiterCall[], { costs, limiters }: Settling): void {
  if ('each' in costs) {
    checkOption(
      Array.isArray(costs.each) && costs.each.length === calls.length,
      'Each request needs one cost, in the order of the requests.',
    )
  }
  checkOption(
    !limiters || limiters.length === calls.length,
    'limiters needs a plan or undefined for each request, in the order of the requests.',
  )
  for (const [place, each] of calls.entries()) {
    const present = limiters?.[place]
    const limiter = present === undefined ? each.call.limiter : present
    checkLimiter(limiter)
    const { rows, terms } = each.checker
    if (present !== undefined) checkTakesLimiter(terms.limiter)
    const { prefix } = rows.namespace
    const cost: unknown = costAt(costs, place)
    checkRate(cost, limiter, prefix, COST)
    if (cost < 0) {
      throw new RatelimitError('INVALID_RATE', `${COST} of ${JSON.stringify(prefix)} must be 0 or more.`)
    }
  }
}

const COST = 'The cost'
