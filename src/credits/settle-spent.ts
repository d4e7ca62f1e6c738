import { allowanceOf } from '../answers/answer.ts'
import { notAsExpected } from '../database/rows.ts'
import { checkOption } from '../options/validate.ts'
import {
  answerToCharge,
  chargeOf,
  type Expense,
  missingOf,
  partsToReturn,
  refundOf,
  type SettledSpending,
  type Settling,
  sumOf,
} from '../reservations/settle-spent.ts'
import { orderIn } from '../reservations/spend.ts'
import { type Adjusted, adjustedIn } from '../several/adjust-all.ts'
import type { Group } from '../several/sending.ts'
import { askedOf, takeTogether } from '../several/together.ts'
import { type Part, payersOf, paysIn, seenAfter } from './charge.ts'
import { givenBack, refundCalls, refundsTo } from './give-back.ts'
import { chargedIn, type Mixed, roomIn, sourcesOf, spread } from './in-list.ts'
import { leftOf, read } from './read.ts'
import { allowed, charged } from './usage.ts'

/** What was spent from several limits, one of which is the credits of a key. */
export interface MixedExpense extends Expense, Pick<Mixed, 'account' | 'place'> {
  /** What the grants have paid. */
  readonly parts: readonly Part[]
}

/** Gives back what was spent above the actual cost: the last limit, and the last grant, gets its part first. */
export async function giveBack(
  expense: MixedExpense,
  actual: number,
  { limiters, tx }: Settling,
): Promise<SettledSpending> {
  const { account, calls, granted, place } = expense
  checkPlans(expense, limiters)
  const parts = partsToReturn(granted, sumOf(granted) - actual)
  const refunds = refundCalls(account.checker, refundsTo(account, expense.parts, parts[place] ?? 0))
  const others = calls.map((each, at) =>
    at === place ? each : refundOf(expense, at, parts[at] ?? 0, limiters[at]),
  )
  // It is read before, because an error after the refund would say that nothing was given back.
  const seen = await read(account, tx)
  const list = spread(others, place, refunds)
  if (list.length === 0) return { granted, results: [allowed(seen)] }
  const asked = askedOf(list, tx)
  const decisions = await takeTogether(asked)
  const own = givenBack(account.key, seen, refunds, asked, decisions)
  const settled = others.map((each, at) => {
    if (at === place) return { answer: allowed(own.after), returned: own.returned }
    const [{ outcome, reporting, returned }] = adjustedIn(asked, decisions, [each]) as [Adjusted]
    return {
      answer: allowanceOf(outcome, reporting),
      returned: each.call.limiter.stored ? returned : (parts[at] ?? 0),
    }
  })
  return {
    granted: granted.map((each, at) => each - (settled[at]?.returned ?? 0)),
    results: settled.map(({ answer, returned }, at) => (parts[at] ? { ...answer, returned } : answer)),
  }
}

/** Takes what the actual cost is above what was spent, as for limits that have one row each. */
export async function takeMore(
  expense: MixedExpense,
  actual: number,
  debtor: number,
  { limiters, tx }: Settling,
): Promise<SettledSpending> {
  const { account, calls, granted, place } = expense
  checkPlans(expense, limiters)
  const rate = missingOf(expense, actual, limiters)
  const seen = await read(account, tx)
  const left = seen.grants.filter((grant) => leftOf(grant) > 0)
  const debt = debtor === place ? 'takes the rest' : seen.debt > 0 ? 'paid' : 'left'
  const payers = payersOf(account, seen, left.slice(0, roomIn(calls)), rate, debt)
  const charges = calls.map((each, at) => (at === place ? each : chargeOf(each, rate, limiters[at])))
  const list = spread(charges, place, payers.rows)
  const asked = askedOf(list, tx)
  const pays = new Map(paysIn(asked, payers))
  const row = debtor === place ? undefined : asked.rowOf.get(charges[debtor] as (typeof charges)[number])
  if (row) pays.set(row, 'the rest')
  const group: Group = { rate, least: rate, order: orderIn(asked, list), pays }
  const decisions = await takeTogether(asked, [group])
  const sources = sourcesOf({ calls: charges, place }, asked, group, decisions, payers)
  const taken = chargedIn(sources, place, decisions, group)
  const shares = taken.granted
  if (!shares) throw notAsExpected('contradicts itself')
  const ownSources = sources[place] ?? []
  const [before, after] = [seenAfter(payers, ownSources), seenAfter(payers, ownSources, taken.own)]
  return {
    granted: granted.map((each, at) => each + (shares[at] ?? 0)),
    results: charges.map((each, at) => {
      const source = sources[at]?.[0]
      if (at === place || !source) return charged(account, before, after)
      return answerToCharge(each, source.snapshot, shares[at] ?? 0)
    }),
  }
}

function checkPlans({ place }: MixedExpense, limiters: Settling['limiters']): void {
  checkOption(limiters[place] === undefined, 'Credits take no limiter: each grant has its own terms.')
}
