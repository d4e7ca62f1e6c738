import type { Limiter } from '../algorithms/algorithm.ts'
import { TOLERANCE } from '../algorithms/bucket.ts'
import { allowanceOf, type Payment, refundableUntilOf } from '../check/answer.ts'
import type { LimiterCall } from '../check/checker.ts'
import type { LimitResult } from '../check/results.ts'
import type { Database } from '../database/database.ts'
import { notAsExpected } from '../database/rows.ts'
import type { Call } from '../runtime/call.ts'
import { adjustAll } from '../several/adjust-all.ts'
import { found, sourceOf } from '../several/enough.ts'
import type { Sharing } from '../several/sending.ts'
import { sharesOf } from '../several/shares.ts'
import { askedOf, takeTogether } from '../several/together.ts'
import { layoutOf } from './settlement.ts'

/** What was spent from several limits, in the order of the requests. */
export interface Expense {
  readonly calls: readonly LimiterCall[]
  /** How much each has paid. */
  readonly granted: readonly number[]
  readonly paid: readonly Payment[]
  readonly results: readonly LimitResult[]
}

/** How an expense is settled. */
export interface Settling {
  /** The present plans. Those that the caller has not given may be outdated, and replace no row's state. */
  readonly limiters: readonly (Limiter | undefined)[]
  readonly tx: Database | undefined
}

/** The answer of the `commit` and the `release` of `Ratelimit.spend`. */
export interface SettledSpending {
  /**
   * How much each limit has paid in the end, in the order of the requests. Together that is the actual cost, or
   * more if a window that paid is over, because it gives nothing back.
   */
  readonly granted: readonly number[]
  /** The answer of each limit. `returned` is how much it got back. */
  readonly results: readonly LimitResult[]
}

/** Gives back what was spent above the actual cost: the last limit gets its part first. */
export async function giveBack(
  { calls, granted, paid, results }: Expense,
  actual: number,
  { limiters, tx }: Settling,
): Promise<SettledSpending> {
  const parts = partsToReturn(granted, sumOf(granted) - actual)
  const refunds = calls.map(({ checker, call }, place): LimiterCall => {
    const present = presentOf(call, limiters[place])
    // Rows of another algorithm have not paid.
    const part = layoutOf(present.limiter) === layoutOf(call.limiter) ? (parts[place] ?? 0) : 0
    if (part === 0) return { checker, call: { ...present, rate: 0, purpose: 'look' } }
    const { windowStart } = paid[place] as Payment
    const refundableUntil = refundableUntilOf(call.limiter, results[place] as LimitResult)
    return {
      checker,
      call: { ...present, rate: -part, paidWindowStart: windowStart, refundableUntil, purpose: 'adjust' },
    }
  })
  const adjusted = await adjustAll(refunds, tx)
  const returned = adjusted.map((each, place) =>
    calls[place]?.call.limiter.stored ? each.returned : (parts[place] ?? 0),
  )
  return {
    granted: granted.map((each, place) => each - (returned[place] ?? 0)),
    results: adjusted.map(({ outcome, reporting }, place) => {
      const answer = allowanceOf(outcome, reporting)
      return parts[place] ? { ...answer, returned: returned[place] ?? 0 } : answer
    }),
  }
}

/** The part of the amount that each gives back, beginning with the last one. */
function partsToReturn(granted: readonly number[], amount: number): readonly number[] {
  let rest = amount
  const parts = granted.toReversed().map((each) => {
    const part = Math.min(each, rest)
    rest -= part
    return part
  })
  return parts.toReversed()
}

/**
 * Takes what the actual cost is above what was spent: from the limits in their order, and what they do not have
 * as a debt of the one at the place `debtor`.
 */
export async function takeMore(
  { calls, granted }: Expense,
  actual: number,
  debtor: number,
  { limiters, tx }: Settling,
): Promise<SettledSpending> {
  const missing = actual - sumOf(granted)
  // A bucket may have paid a fraction, and a present plan may count whole units.
  const isWhole = calls.some(
    ({ call }, place) => presentOf(call, limiters[place]).limiter.algorithm.integersOnly,
  )
  const rate = isWhole ? Math.ceil(missing - TOLERANCE) : missing
  const charges = calls.map(({ checker, call }, place): LimiterCall => {
    // Like a settlement it is never denied, not even if the key is blocked.
    return { checker, call: { ...presentOf(call, limiters[place]), rate, purpose: 'adjust' } }
  })
  const asked = askedOf(charges, tx)
  const order = charges.map((each) => asked.rowOf.get(each))
  const row = order[debtor]
  const sharing: Sharing = { rate, least: rate, order, debt: row && { row, pays: 'the rest' } }
  const { looks, taken } = await takeTogether(asked, sharing)
  const sources = charges.map((each, place) => {
    const own = order[place]
    if (own) return sourceOf(sharing, own, found(looks, own))
    return { call: each.call, snapshot: found(asked.unlimited, each).decision }
  })
  const shares = taken.size === looks.size ? sharesOf(sources, rate, rate) : undefined
  if (!shares) throw notAsExpected('contradicts itself')
  return {
    granted: granted.map((each, place) => each + (shares[place] ?? 0)),
    results: charges.map(({ checker, call }, place) => {
      const share = shares[place] ?? 0
      const { snapshot } = sources[place] as (typeof sources)[number]
      const decision = { ...snapshot, granted: 1, isNew: false }
      const charged: Call = { ...call, rate: share, purpose: share > 0 ? 'adjust' : 'look' }
      return allowanceOf({ call: charged, decision, place: 0 }, checker.config.reporting)
    }),
  }
}

/** The call under the present plan. For an old plan no row of another algorithm or period begins again. */
function presentOf(call: Call, limiter: Limiter | undefined): Call {
  return { ...call, limiter: limiter ?? call.limiter, refusesOther: limiter === undefined }
}

export function sumOf(amounts: readonly number[]): number {
  return amounts.reduce((sum, each) => sum + each, 0)
}
