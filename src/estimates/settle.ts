import type { Allowed } from '../kernel/answers/results.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import type { Connection } from '../kernel/database/connection.ts'
import { notAsExpected } from '../kernel/database/rows.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { runOn } from '../kernel/engine/work.ts'
import { inSavepointIf, inTransactionIf } from '../shared/transaction-if.ts'
import type { Costs, SettledAll, Settling } from './costs.ts'
import { isPaidByFunds } from './funds.ts'
import { inTurn } from './in-turn.ts'
import { lockAll } from './lock-rows.ts'
import { type Missing, type SettledList, settleList, type Together, type TooLate } from './settle-list.ts'
import {
  type Charged,
  differenceOf,
  isTooLate,
  mayBeLate,
  type Settled,
  settledAnswer,
  settlementOf,
  wholeOf,
  withCost,
  withoutPeriod,
} from './settlement.ts'
import { lastFirst } from './shares.ts'

/**
 * Settles estimates, all or none. During an outage it always throws; `onError` does not apply.
 *
 * @param closings The calls that close the rows of the estimates, if they have rows.
 * @returns Undefined if one of these rows was closed before.
 */
export function settle(
  charged: readonly Charged[],
  settling: Settling,
  tx: At,
  closings: readonly LimiterCall[],
): Promise<SettledAll | undefined>
export function settle(charged: readonly Charged[], settling: Settling, tx: At): Promise<SettledAll>
export async function settle(
  charged: readonly Charged[],
  { costs, limiters = [] }: Settling,
  tx: At,
  closings: readonly LimiterCall[] = [],
): Promise<SettledAll | undefined> {
  const actuals = 'each' in costs ? costs.each : keptOf(charged, costs.total)
  const settled = charged.map((each, place) => withCost(each, actuals[place] as number, limiters[place]))
  const missing = 'each' in costs ? undefined : missingFor(settled, costs)
  const list = await settleFrom({ settled, missing, closings }, tx)
  if (!list && closings.length === 0) throw notAsExpected('contradicts itself')
  if (!list || 'each' in costs) return list && { granted: actuals, results: list.answers }
  const results = list.answers.map((answer, place) => withUnlimited(answer, settled[place] as Settled))
  const granted = settled.map(({ paid }, place) => {
    const { returned = 0 } = results[place] as Allowed
    return paid.rate - returned + (list.shares?.[place] ?? 0)
  })
  return { granted, results }
}

/** What is kept of each estimate if all of them pay one cost: the last one gives back first. */
function keptOf(charged: readonly Charged[], total: number): readonly number[] {
  const rates = charged.map(({ paid }) => paid.rate)
  const returned = lastFirst(rates, sumOfRates(rates) - total)
  return rates.map((rate, place) => rate - (returned[place] as number))
}

/** What one cost is above the estimates. */
function missingFor(
  settled: readonly Settled[],
  { total, debt }: Exclude<Costs, { readonly each: unknown }>,
): Missing | undefined {
  const rate = total - sumOfRates(settled.map(({ paid }) => paid.rate))
  if (rate <= 0) return undefined
  const isWhole = settled.some(({ limiter }) => limiter.algorithm.integersOnly)
  return { rate: isWhole ? wholeOf(rate) : rate, debtor: debt === 'first' ? 0 : settled.length - 1 }
}

function sumOfRates(rates: readonly number[]): number {
  return rates.reduce((sum, rate) => sum + rate, 0)
}

/** Of one cost, a limit without a row gets back what it has paid too much. */
function withUnlimited(answer: Allowed, { paid, layout, actual }: Settled): Allowed {
  const returned = paid.rate - actual
  return layout === '' && returned > 0 ? { ...answer, returned } : answer
}

/** A period may end while a statement waits for its row. So the statement says so, and has settled nothing. */
async function settleFrom(all: Together, tx: At): Promise<SettledList | undefined> {
  const found = await settleInTime(all, tx)
  if (!found || 'answers' in found) return found
  const { settled, closings } = all
  const { looks } = found
  const isLate = (each: Settled, place: number) => isTooLate(each, looks[place])
  if (!settled.some(isLate)) throw notAsExpected('contradicts itself')
  const { endedPeriod } = await late()
  if (!settled.some((each, place) => endedPeriod(each, looks[place]))) {
    const rest = settled.map((each, place) => (isLate(each, place) ? withoutPeriod(each) : each))
    return settleFrom({ ...all, settled: rest }, tx)
  }
  if (settled.length === 1 && closings.length === 0) return correctAll(all, tx)
  const [{ each }] = settled as readonly [Settled]
  const correctIn = async (own: Connection) => {
    await lockAll(settled, closings, own)
    return correctAll(all, own.db)
  }
  return runOn(each.checker, tx, 'changes', (connection) =>
    inTransactionIf(connection, correctIn, (list) => list !== undefined),
  )
}

function settleInTime(all: Together, tx: At): Promise<SettledList | TooLate | undefined> {
  const { settled, missing, closings } = all
  const [only, ...more] = settled
  const isAlone = more.length === 0 && !missing && closings.length === 0
  const lates = settled.filter(mayBeLate)
  // Outside of a list, what was too little would be charged to another period than the one that paid.
  const needsList = lates.some((each) => differenceOf(each) > 0)
  if (only && isAlone && !needsList) return settleOne(only, all, tx)
  // If it is too late, it has not locked all rows in their order, so it keeps no lock.
  const joined = settled.length > 1 ? lates[0]?.each.checker.joined(tx) : undefined
  const isDone = (found: SettledList | TooLate | undefined) => found !== undefined && 'answers' in found
  return inSavepointIf(joined, tx, (at) => settleList(all, at), isDone)
}

/** One limit that one row has paid needs no list, so its settlement shares a statement as checks do. */
async function settleOne(
  settled: Settled,
  all: Together,
  tx: At,
): Promise<SettledList | TooLate | undefined> {
  const { each, parts } = settled
  const isOfFunds = isPaidByFunds(each)
  const own = isOfFunds
    ? each.funds.refund(parts, -differenceOf(settled))
    : { checker: each.checker, call: settlementOf(settled) }
  const outcome = own && (await own.checker.decide(own.call, tx))
  if (!outcome || (isOfFunds && outcome.place >= outcome.decision.granted)) return settleList(all, tx)
  if (isTooLate(settled, outcome.decision)) return { looks: [outcome.decision] }
  return { answers: [settledAnswer(outcome, settled, each.checker.terms.reporting)] }
}

const late = /* @__PURE__ */ onFirstUse(() => import('./late.ts'))

/** Corrects the periods that have ended, and settles the rest as a list. */
async function correctAll(all: Together, tx: At): Promise<SettledList | undefined> {
  const { settleLate } = await late()
  const { settled, missing, closings } = all
  const corrected = await inTurn(settled, async (each) =>
    mayBeLate(each) ? settleLate(each, tx) : undefined,
  )
  if (missing) {
    // What is above the estimates comes from the present periods.
    const rest = settled.map((each, place) => (corrected[place] ? withoutPeriod(each) : each))
    return settleFrom({ ...all, settled: rest }, tx)
  }
  const rest = settled.filter((_, place) => !corrected[place])
  const isLeft = rest.length + closings.length > 0
  const list = isLeft ? await settleFrom({ ...all, settled: rest }, tx) : { answers: [] }
  if (!list) return undefined
  const answers = list.answers.values()
  return { answers: corrected.map((answer) => answer ?? (answers.next().value as Allowed)) }
}
