import type { Allowed, LimitAllResult } from '../kernel/answers/results.ts'
import { checkOptions } from '../kernel/base/check-options.ts'
import { own } from '../kernel/errors.ts'
import { idCall } from '../kernel/lists/ids.ts'
import { decideAll } from '../kernel/lists/limit-all.ts'
import { callsOf, combined } from '../kernel/lists/requests.ts'
import type { Requested } from '../kernel/options/calls.ts'
import { estimateOf, namingOf } from './estimate.ts'
import { inMemory, OF_ANOTHER_CALL } from './in-memory.ts'
import { chargeNamed } from './named.ts'
import { type ReserveAllOptions, reserveRequest } from './options.ts'
import type { SettleAllOptions } from './settle-options.ts'
import * as SETTLING from './settle-options.ts'

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
   * `ALREADY_SETTLED`, and the errors of `limitAll`.
   */
  commit(actuals: readonly number[], options?: SettleAllOptions): Promise<readonly Allowed[]>
  /** Gives all of it back: the same as `commit` with a 0 for each. */
  release(options?: SettleAllOptions): Promise<readonly Allowed[]>
}

/** The answer of `reserveAll`. A denial needs no settling. */
export type ReservedAll<Request> =
  | (LimitAllResult<Request> & { readonly success: true } & Reservations)
  | (LimitAllResult<Request> & { readonly success: false })

/** Charges the rates of all calls as estimates, or of none. They are settled together. */
export async function reserveCalls<Request extends Requested>(
  requests: readonly Request[],
  options: ReserveAllOptions,
): Promise<ReservedAll<Request>> {
  const { tx, once } = options
  const calls = await callsOf(requests, reserveRequest)
  const estimates = calls.map(estimateOf)
  const name = namingOf(options)
  const charged = name && (await own(chargeNamed(estimates, name, tx)))
  const answered = charged?.answered ?? (await own(decideAll(estimates, tx, [await idCall(once, estimates)])))
  const { success, ...answer } = combined(requests, answered)
  if (!success) return { ...answer, success }
  const settle =
    charged?.settle ?? (answer.repeated ? OF_ANOTHER_CALL : await inMemory(estimates, answered, tx))
  const commit: Reservations['commit'] = async (actuals, options = {}) => {
    checkOptions(options, SETTLING.settleAll)
    const settled = settle({ costs: { each: actuals }, limiters: options.limiters }, options.tx)
    return (await own(settled)).results
  }
  const nothing = calls.map(() => 0)
  return { ...answer, success, commit, release: (given) => commit(nothing, given) }
}
