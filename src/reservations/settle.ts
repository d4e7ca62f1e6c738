import { MAX_COUNT } from '../algorithms/limiter.ts'
import type { Allowed } from '../answers/results.ts'
import { inTurn } from '../base/in-turn.ts'
import { onFirstUse } from '../base/on-first-use.ts'
import type { At } from '../check/bounds.ts'
import type { Checker, LimiterCall } from '../check/checker.ts'
import { isFunded } from '../check/funds.ts'
import { runOn } from '../check/run-on.ts'
import { withinTimeout } from '../check/within-timeout.ts'
import type { Connection } from '../database/connection.ts'
import { notAsExpected } from '../database/rows.ts'
import { inTransactionIf } from '../database/transaction.ts'
import { lockRows } from '../several/lock-rows.ts'
import { lastFirst } from '../several/shares.ts'
import type { Costs, SettledAll, Settling } from './costs.ts'
import { type Missing, type SettledList, settleList } from './settle-list.ts'
import {
  type Charged,
  mayBeLate,
  type Settled,
  settledAnswer,
  settlementOf,
  wholeOf,
  withCost,
} from './settlement.ts'

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
  const list = await settleAll(settled, missing, tx, closings)
  if (!list && closings.length === 0) throw notAsExpected('contradicts itself')
  if (!list || 'each' in costs) return list && { granted: actuals, results: list.answers }
  const results = list.answers.map((answer, place) => withUnlimited(answer, settled[place] as Settled))
  const granted = settled.map(({ estimate }, place) => {
    const { returned = 0 } = results[place] as Allowed
    return estimate.paid.rate - returned + (list.shares?.[place] ?? 0)
  })
  return { granted, results }
}

/** What is kept of each estimate if all of them pay one cost: the last one gives back first. */
function keptOf(charged: readonly Charged[], total: number): readonly number[] {
  const rates = charged.map(({ estimate }) => estimate.paid.rate)
  const returned = lastFirst(rates, sumOf(rates) - total)
  return rates.map((rate, place) => rate - (returned[place] as number))
}

/** What one cost is above the estimates. */
function missingFor(
  settled: readonly Settled[],
  { total, debt }: Exclude<Costs, { readonly each: unknown }>,
): Missing | undefined {
  const rate = total - sumOf(settled.map(({ estimate }) => estimate.paid.rate))
  if (rate <= 0) return undefined
  const isWhole = settled.some(({ limiter }) => limiter.algorithm.integersOnly)
  return { rate: isWhole ? wholeOf(rate) : rate, debtor: debt === 'first' ? 0 : settled.length - 1 }
}

function sumOf(rates: readonly number[]): number {
  return rates.reduce((sum, rate) => sum + rate, 0)
}

/** Of one cost, a limit without a row gets back what it has paid too much. */
function withUnlimited(answer: Allowed, { estimate, actual }: Settled): Allowed {
  const returned = estimate.paid.rate - actual
  return estimate.layout === '' && returned > 0 ? { ...answer, returned } : answer
}

/** Settles in one statement if it can. To correct a period that has ended takes statements of their own. */
function settleAll(
  settled: readonly Settled[],
  missing: Missing | undefined,
  tx: At,
  closings: readonly LimiterCall[],
): Promise<SettledList | undefined> {
  const isInGrace = settled.some(mayBeLate)
  const isAlone = isOne(settled) && closings.length === 0
  // Where there are rows to close, the time of the call has begun.
  if (!isInGrace && (isAlone || closings.length > 0)) return settleInTime(settled, missing, tx, closings)
  const checkers = settled.map(({ each }) => each.checker)
  return withinTimeout(checkers, tx, async (at) => {
    if (isInGrace && isAlone) return settleInGrace(settled, missing, at, closings)
    const isLate = isInGrace && (closings.length > 0 || (await isOneLate(settled, at)))
    if (!isLate) return settleList(settled, missing, at, closings)
    const settleIn = async (own: Connection) => {
      await lockAll(settled, closings, own)
      return settleInGrace(settled, missing, own.db, closings)
    }
    return runOn(checkers[0] as Checker, at, 'changes', (connection) =>
      inTransactionIf(connection, settleIn, (list) => list !== undefined),
    )
  })
}

function settleInTime(
  settled: readonly Settled[],
  missing: Missing | undefined,
  tx: At,
  closings: readonly LimiterCall[],
): Promise<SettledList | undefined> {
  const isAlone = isOne(settled) && !missing && closings.length === 0
  return isAlone ? settleOne(settled[0], tx) : settleList(settled, missing, tx, closings)
}

/** One limit of one row needs no list, so its settlement shares a statement as checks do. */
async function settleOne(settled: Settled, tx: At): Promise<SettledList> {
  const { checker } = settled.each
  const outcome = await checker.decide(settlementOf(settled), tx)
  return { answers: [settledAnswer(outcome, settled, checker.terms.reporting)] }
}

function isOne(settled: readonly Settled[]): settled is readonly [Settled] {
  const [first] = settled
  return settled.length === 1 && first !== undefined && !isFunded(first.each)
}

const late = /* @__PURE__ */ onFirstUse(() => import('./late.ts'))

async function isOneLate(settled: readonly Settled[], tx: At): Promise<boolean> {
  return (await late()).isOneLate(settled.filter(mayBeLate), tx)
}

/** Corrects the periods that have ended, and settles the rest as a list. */
async function settleInGrace(
  settled: readonly Settled[],
  missing: Missing | undefined,
  tx: At,
  closings: readonly LimiterCall[],
): Promise<SettledList | undefined> {
  const { settleLate } = await late()
  const corrected = await inTurn(settled, async (each) =>
    mayBeLate(each) ? settleLate(each, tx) : undefined,
  )
  if (missing) {
    // What is above the estimates comes from the present periods.
    const rest = settled.map((each, place) => (corrected[place] ? unreserved(each) : each))
    return settleList(rest, missing, tx, closings)
  }
  const rest = settled.filter((_, place) => !corrected[place])
  const list = rest.length + closings.length > 0 ? await settleInTime(rest, missing, tx, closings) : NOTHING
  if (!list) return undefined
  const answers = list.answers.values()
  return { answers: corrected.map((answer) => answer ?? (answers.next().value as Allowed)) }
}

const NOTHING: SettledList = { answers: [] }

function unreserved({ estimate, ...settled }: Settled): Settled {
  return { ...settled, estimate: { ...estimate, isReserved: false } }
}

/**
 * Locks the limits and the rows of estimates in the order of every list, for statements that need only some of
 * them.
 */
export async function lockAll(
  charged: readonly Charged[],
  closings: readonly LimiterCall[],
  connection: Connection,
): Promise<void> {
  // The statements for one limit have that order.
  if (charged.length < 2) return
  const limits = await inTurn(charged, async ({ each, estimate }): Promise<readonly LimiterCall[]> => {
    if (!isFunded(each)) return [taken(each)]
    const { checker, funds } = each
    const { rows } = await funds.take(ALL, connection.db)
    return [...rows, ...estimate.parts.map(({ call }) => taken({ checker, call }))]
  })
  await lockRows([...limits.flat(), ...closings], connection)
}

const ALL = { rate: MAX_COUNT, least: MAX_COUNT, lacking: 'owed' } as const

/** A call that needs the row. */
function taken({ checker, call }: LimiterCall): LimiterCall {
  return { checker, call: { ...call, rate: 1, purpose: 'take' } }
}
