import type { Limiter } from '../algorithms/algorithm.ts'
import { withCrossed } from '../answers/answer.ts'
import type { Allowed, LimitResult } from '../answers/results.ts'
import { checkOptions } from '../base/check-options.ts'
import type { LimiterCall } from '../check/checker.ts'
import { NEEDS_ID, type SpendOptions } from '../options/reserve.ts'
import type { CommitSpentOptions, SettleAllOptions, SettleSpentOptions } from '../options/settle.ts'
import * as SETTLING from '../options/settle.ts'
import { checkOption } from '../options/validate.ts'
import { estimateOf } from './estimate.ts'
import { inPlan, opening, partsNamed } from './named.ts'
import { lookingAt, type Opening, type Part } from './part.ts'
import { settleParts } from './settle-named.ts'
import { partsToReturn, type SettledSpending, type Settling, sumOf, takeMore } from './settle-spent.ts'
import { checkCost } from './settlement.ts'

/** An estimate over several limits with a name: each has the estimate of its share. */
interface NamedExpense {
  readonly calls: readonly LimiterCall[]
  readonly parts: readonly Part[]
}

/** An estimate with a name, and the calls that make its rows. */
export interface NamedSpending extends NamedExpense, Opening {}

/** The estimates of a call with a name. Undefined if it has none. */
export async function openSpending(
  given: readonly LimiterCall[],
  options: SpendOptions,
): Promise<NamedSpending | undefined> {
  const { id, expires, once } = options
  checkOption(id !== undefined || expires === undefined, NEEDS_ID)
  if (id === undefined) return undefined
  checkOption(once === undefined, 'Use either id or once: an id is charged once, too.')
  const unlimited = given.filter(({ call }) => !call.limiter.stored)
  checkOption(unlimited.length < 2, 'With an id, at most one of the limits can be unlimited.')
  const calls = given.map((each) => ({ ...each, call: estimateOf(each.call) }))
  return { calls, ...(await opening(calls, options, 0)) }
}

/** Settles what was spent under a name, as its `commit` does. */
export async function settleByName(
  requests: readonly { readonly limiter?: Limiter | undefined }[],
  calls: readonly LimiterCall[],
  id: string,
  actual: number,
  options: SettleSpentOptions,
): Promise<SettledSpending> {
  checkOptions(options, SETTLING.settleSpent)
  const { tx, debt = 'last' } = options
  const parts = await partsNamed(requests, calls, id)
  const limiters = requests.map(({ limiter }) => limiter)
  return settleSpending({ calls, parts }, actual, debt, { limiters, tx })
}

/** The `commit` and the `release` of a name. After a repeated call they settle the first call's estimate. */
export function settlingByName(expense: NamedExpense): {
  commit(actual: number, options?: CommitSpentOptions): Promise<SettledSpending>
  release(options?: SettleAllOptions): Promise<SettledSpending>
} {
  const settleWith = (actual: number, { tx, limiters = [], debt = 'last' }: CommitSpentOptions) =>
    settleSpending(expense, actual, debt, { limiters, tx })
  return {
    commit: async (actual, options = {}) => {
      checkOptions(options, SETTLING.commitSpent)
      return settleWith(actual, options)
    },
    release: async (options = {}) => {
      checkOptions(options, SETTLING.settleAll)
      return settleWith(0, options)
    },
  }
}

/** Settles what one cost has taken from several limits, once. */
async function settleSpending(
  { calls, parts }: NamedExpense,
  actual: number,
  debt: 'first' | 'last',
  { limiters, tx }: Settling,
): Promise<SettledSpending> {
  const present = parts.map((part, place) => inPlan(part, limiters[place]))
  for (const part of present) checkCost(part.checker, actual, part)
  const debtor = debt === 'first' ? 0 : parts.length - 1
  let more: SettledSpending | undefined
  const returnedOf = (rates: readonly number[]) => partsToReturn(rates, Math.max(sumOf(rates) - actual, 0))
  const { answers, rates } = await settleParts(
    present,
    {
      // Each row remembers the whole cost, because its share depends on what the others had.
      remembered: parts.map(() => actual),
      of: (rates) => rates.map((rate, place) => rate - (returnedOf(rates)[place] ?? 0)),
      after: (rates) => {
        // A settlement that came too late has taken more, and was rolled back.
        more = undefined
        if (actual <= sumOf(rates)) return undefined
        return async (own) => {
          const settling = { limiters, tx: own }
          more = await takeMore({ calls, granted: rates }, actual, debtor, settling, lookingAt(parts))
        }
      },
    },
    tx,
  )
  if (more && rates)
    return { ...more, results: more.results.map((each, place) => joined(answers[place], each)) }
  const parted = returnedOf(rates ?? [])
  const granted = answers.map((answer, place) => {
    const returned = parts[place]?.limiter.stored ? answer.returned : parted[place]
    return (rates?.[place] ?? 0) - (returned ?? 0)
  })
  return rates ? { granted, results: answers } : { granted, results: answers, repeated: true }
}

/** The answer of a limit that took more than its estimate, with what settling the estimate has reported. */
function joined(settled: Allowed | undefined, more: LimitResult): LimitResult {
  if (!settled || !more.success) return more
  const { ended, correction } = settled
  const own = { ...(ended ? { ended } : {}), ...(correction ? { correction } : {}), ...more }
  return withCrossed(own, [...(settled.crossed ?? []), ...(more.crossed ?? [])])
}
