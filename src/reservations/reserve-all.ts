import type { Limiter } from '../algorithms/algorithm.ts'
import type { Answered } from '../answers/answer.ts'
import type { Allowed, LimitAllResult } from '../answers/results.ts'
import { checkOptions } from '../base/check-options.ts'
import type { At } from '../check/bounds.ts'
import type { LimiterCall } from '../check/checker.ts'
import { FUNDED_LIMITER, isFunded } from '../check/funds.ts'
import { withinTimeout } from '../check/within-timeout.ts'
import type { Database } from '../database/database.ts'
import { mustHave } from '../database/rows.ts'
import * as CALLS from '../options/call-table.ts'
import type { CallOptions, TxOptions } from '../options/calls.ts'
import { NEEDS_ID, type ReserveAllOptions } from '../options/reserve.ts'
import type { SettleAllOptions } from '../options/settle.ts'
import * as SETTLING from '../options/settle.ts'
import { checkOption } from '../options/validate.ts'
import { chargedIn } from '../several/charged-in.ts'
import { combined, decideAll } from '../several/limit-all.ts'
import { Once } from '../several/once.ts'
import { chargedBy, checkReserved, estimateOf } from './estimate.ts'
import { chargeNamed, heldParts, inPlan, opening, partsNamed } from './named.ts'
import type { Part } from './part.ts'
import { type Cost, settleCosts } from './settle-costs.ts'
import { settleParts } from './settle-named.ts'
import { checkCost } from './settlement.ts'

/** Estimates that are charged together and wait for their costs. */
export interface Reservations {
  /**
   * Settles the actual costs, all or none, in the order of the requests; in one statement if the rows exist. If
   * an estimate was too low, the rest is charged, into debt if necessary. If it was too high, the rest is given
   * back to the window that paid. Estimates for one row are settled by their sums. It is never denied.
   *
   * If a plan may have changed since, give the present plans. Without them, a row that now has another
   * algorithm or period is refused with `OTHER_PLAN`. During an outage it always throws, so that no cost is
   * lost; `onError` does not apply.
   *
   * It can be called again after an error that says that nothing was charged, and after a rollback of `tx`. It
   * does not notice a rollback to a savepoint: another call is refused until the whole transaction is rolled
   * back.
   *
   * @returns The answer of each limit, in the order of the requests.
   * @throws RatelimitError before any SQL `INVALID_OPTION` for a wrong number of costs, `INVALID_RATE`; then
   * `ALREADY_SETTLED`, and the errors of `Ratelimit.limitAll`.
   */
  commit(actuals: readonly number[], options?: SettleAllOptions): Promise<readonly Allowed[]>
  /** Gives all of it back: the same as `commit` with a 0 for each. */
  release(options?: SettleAllOptions): Promise<readonly Allowed[]>
}

/** The answer of `Ratelimit.reserveAll`. A denial needs no settling. */
export type ReservedAll<Request> =
  | (LimitAllResult<Request> & { readonly success: true } & Reservations)
  | (LimitAllResult<Request> & { readonly success: false })

/** Charges the rates of all calls as estimates, or of none. They are settled together. */
export async function reserveAll<Request>(
  requests: readonly Request[],
  calls: readonly LimiterCall[],
  options: ReserveAllOptions,
): Promise<ReservedAll<Request>> {
  for (const { call } of calls) checkReserved(call)
  const estimates = calls.map((each) => ({ ...each, call: estimateOf(each.call) }))
  const { tx } = options
  const named = options.id === undefined ? undefined : await opening(estimates, options)
  checkOption(named !== undefined || options.expires === undefined, NEEDS_ID)
  const answered = await (named ? chargeNamed(estimates, named, tx) : decideAll(estimates, tx))
  const { success, ...answer } = combined(requests, answered)
  if (!success) return { ...answer, success }
  const reservations = named
    ? namedReservations(answer.repeated ? await heldParts(named, tx) : named.parts)
    : await reservationsOf(calls, answered, tx)
  return { ...answer, success, ...reservations }
}

function namedReservations(parts: readonly Part[]): Reservations {
  const commit: Reservations['commit'] = async (actuals, options = {}) => {
    checkOptions(options, SETTLING.settleAll)
    const { tx, limiters = [] } = options
    return settleAllNamed(
      parts.map((part, place) => inPlan(part, limiters[place])),
      actuals,
      tx,
    )
  }
  return { commit, release: (options) => commit(new Array(parts.length).fill(0), options) }
}

/** Settles the reservations of a name, as their `commit` does. */
export async function settleAllByName(
  requests: readonly { readonly limiter?: Limiter | undefined }[],
  calls: readonly LimiterCall[],
  id: string,
  actuals: readonly number[],
  options: TxOptions,
): Promise<readonly Allowed[]> {
  checkOptions(options, CALLS.tx)
  return settleAllNamed(await partsNamed(requests, calls, id), actuals, options.tx)
}

/** Settles the estimates of a name, each with its cost, all or none. */
async function settleAllNamed(
  parts: readonly Part[],
  actuals: readonly number[],
  tx: Database | undefined,
): Promise<readonly Allowed[]> {
  checkCosts(actuals, parts.length)
  for (const [place, part] of parts.entries()) checkCost(part.checker, actuals[place], part)
  return (await settleParts(parts, { remembered: actuals }, tx)).answers
}

/** @throws RatelimitError `INVALID_OPTION` */
export function checkCosts(actuals: readonly number[], length: number): void {
  checkOption(
    Array.isArray(actuals) && actuals.length === length,
    'commit needs one cost for each request, in the order of the requests.',
  )
}

export async function reservationsOf(
  calls: readonly LimiterCall[],
  answered: readonly Answered[],
  tx: CallOptions['tx'],
): Promise<Reservations> {
  // All have the same database. Otherwise nothing would have been reserved.
  const [{ checker }] = calls as readonly [LimiterCall]
  const settling = new Once(checker, await chargedIn(checker, tx))
  const commit: Reservations['commit'] = async (actuals, options = {}) => {
    checkOptions(options, SETTLING.settleAll)
    const { tx, limiters = [] } = options
    const costs = costsOf(calls, answered, actuals, limiters)
    const checkers = calls.map((each) => each.checker)
    const settleIn = async (at: At) => mustHave(await settleCosts(calls, costs, at))
    return settling.run(tx, () => withinTimeout(checkers, tx, settleIn))
  }
  return { commit, release: (options) => commit(new Array(calls.length).fill(0), options) }
}

/** @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE` */
function costsOf(
  calls: readonly LimiterCall[],
  answered: readonly Answered[],
  actuals: readonly number[],
  limiters: readonly (Limiter | undefined)[],
): Cost[] {
  checkCosts(actuals, calls.length)
  return calls.map((each, place) => {
    const { call } = each
    const given = limiters[place]
    checkOption(given === undefined || !isFunded(each), FUNDED_LIMITER)
    const plan = { limiter: given ?? call.limiter, isPresent: given !== undefined }
    const actual = actuals[place] as number
    checkCost(each.checker, actual, plan)
    const { parts = [] } = answered[place] as Answered
    return { ...plan, estimate: chargedBy(call, answered[place] as Answered), actual, parts }
  })
}
