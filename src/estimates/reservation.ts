import type { Answered } from '../kernel/answers/answer.ts'
import type { Allowed, Denied, Granted } from '../kernel/answers/results.ts'
import { checkOptions } from '../kernel/base/check-options.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { own } from '../kernel/errors.ts'
import { answerEach } from '../kernel/lists/one-call.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { CallOptions } from '../kernel/options/calls.ts'
import type { Settle } from './costs.ts'
import { estimateOf, namingOf } from './estimate.ts'
import { inMemory, OF_ANOTHER_CALL } from './in-memory.ts'
import type { ReserveOptions } from './options.ts'

/** A charged estimate that waits for its cost. */
export interface Reservation {
  /**
   * Settles the actual cost. If the estimate was too low, the rest is charged, into debt if necessary. If it
   * was too high, the rest is given back to the window that paid. It is never denied.
   *
   * During an outage it always throws, so that the cost is not lost; `onError` does not apply. Without `tx` it
   * runs outside the transaction of the reservation, and is refused until that has committed. Without `limiter`
   * it uses the limit of the reservation. If the customer's plan may have changed since, give the present one.
   * Without it the call is refused with `OTHER_PLAN` if the row now has another algorithm or period.
   *
   * It can be called again after an error that says that nothing was charged, and after a rollback of `tx`. It
   * does not notice a rollback to a savepoint: another call is refused until the whole transaction is rolled
   * back. If a savepoint that reserved is rolled back, settle nothing, because that would give back what was
   * never charged. Under a name this is refused: its row was rolled back too.
   *
   * @throws RatelimitError `INVALID_RATE`, `ALREADY_SETTLED`, `NOT_RESERVED` outside of the open transaction
   * that reserved, and after its rollback; the errors of `Ratelimit.limit`.
   */
  commit(actual: number, options?: CallOptions): Promise<Allowed>
  /** Gives all of it back: the same as `commit(0)`. */
  release(options?: CallOptions): Promise<Allowed>
}

/** The answer of `Ratelimit.reserve`. A denial needs no settling. */
export type Reserved = (Allowed & Reservation) | Denied

/** The answer of `Ratelimit.reserve` with `atLeast`. */
export type ReservedPart = (Allowed & Granted & Reservation) | Denied

const naming = /* @__PURE__ */ onFirstUse(() => import('./named.ts'))

/** Charges the call's rate as an estimate. */
export async function reserve(own: LimiterCall, options: ReserveOptions): Promise<Reserved> {
  const calls = [estimateOf(own)] as const
  const name = namingOf(options)
  const { tx } = options
  const named = name && (await (await naming()).chargeNamed(calls, name, tx))
  const answered = named?.answered ?? [await answerEach(calls[0], options)]
  const [{ answer }] = answered as [Answered]
  if (!answer.success) return answer
  const settle = named?.settle ?? (answer.repeated ? OF_ANOTHER_CALL : await inMemory(calls, answered, tx))
  return Object.assign(reservationOf(settle), answer)
}

function reservationOf(settle: Settle): Reservation {
  const commit: Reservation['commit'] = async (actual, options = {}) => {
    checkOptions(options, CALLS.call)
    const { limiter, tx } = options
    const { results } = await own(settle({ costs: { each: [actual] }, limiters: [limiter] }, tx))
    return results[0] as Allowed
  }
  return { commit, release: (options) => commit(0, options) }
}
