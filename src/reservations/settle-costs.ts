import { allowanceOf, type PaidPart } from '../answers/answer.ts'
import type { Allowed } from '../answers/results.ts'
import type { At } from '../check/bounds.ts'
import type { LimiterCall } from '../check/checker.ts'
import { type Funds, isFunded, type Purse } from '../check/funds.ts'
import { type Adjusted, adjustAll, type Repaid } from '../several/adjust-all.ts'
import { differenceOf, type Settled, settledAnswer, settlementOf } from './settlement.ts'

/** A cost, and the parts of the estimate that several rows have paid. */
export interface Cost extends Settled {
  readonly parts: readonly PaidPart[]
}

/**
 * Settles the costs of calls, all or none.
 *
 * @param closings The calls that close the estimates, if these are rows.
 * @returns Undefined if one of the estimates was closed before.
 */
export async function settleCosts(
  calls: readonly Pick<LimiterCall, 'checker'>[],
  costs: readonly Cost[],
  tx: At,
  closings: readonly LimiterCall[] = [],
): Promise<Allowed[] | undefined> {
  const settlements = calls.map((each, place) =>
    isFunded(each) ? each : { checker: each.checker, call: settlementOf(each.checker, costs[place] as Cost) },
  )
  const find = ({ funds }: { readonly funds: Funds }, place: number) =>
    settleFunds(funds, costs[place] as Cost, tx)
  const adjusted = await adjustAll(settlements, find, tx, closings)
  return adjusted && costs.map((cost, place) => answerTo(cost, adjusted[place] as Adjusted, costs, adjusted))
}

/** What gives back the part of an estimate that was not needed, or pays what it lacks. */
function settleFunds(funds: Funds, cost: Cost, tx: At): Promise<Purse> {
  const missing = differenceOf(cost)
  return missing > 0
    ? funds.take({ rate: missing, least: missing, lacking: 'owed', as: 'settle' }, tx)
    : funds.giveBack(cost.parts, -missing, tx, 'settle')
}

function answerTo(
  cost: Cost,
  own: Adjusted | Repaid,
  costs: readonly Cost[],
  adjusted: readonly (Adjusted | Repaid)[],
): Allowed {
  if (!('outcome' in own)) return own.answer
  const ofRow = costs.filter((_, other) => adjusted[other] === own)
  const { outcome, reporting } = own
  if (ofRow[0] === cost) return settledAnswer(outcome, sumOf(ofRow), reporting)
  // The first one for a row has reported the crossed thresholds, the returned amount and the ended period.
  const decision = { ...outcome.decision, ended: undefined }
  const left = allowanceOf({ ...outcome, decision }, { ...reporting, thresholds: [] })
  return cost.actual < cost.estimate.paid.rate ? { ...left, returned: 0 } : left
}

/** The sum of the costs of estimates for one row. */
function sumOf(costs: readonly Settled[]): Settled {
  const [first] = costs as [Settled]
  const { paid } = first.estimate
  const rate = costs.reduce((sum, { estimate }) => sum + estimate.paid.rate, 0)
  const actual = costs.reduce((sum, each) => sum + each.actual, 0)
  return { ...first, actual, estimate: { ...first.estimate, paid: { ...paid, rate } } }
}
