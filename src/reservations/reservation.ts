import type { Answered } from '../answers/answer.ts'
import type { Allowed, Denied, Granted } from '../answers/results.ts'
import { checkOptions } from '../base/check-options.ts'
import { onFirstUse } from '../base/on-first-use.ts'
import type { LimiterCall } from '../check/checker.ts'
import { isFunded } from '../check/funds.ts'
import { answerTo } from '../check/layers.ts'
import * as CALLS from '../options/call-table.ts'
import type { CallOptions } from '../options/calls.ts'
import { type NamedReserveOptions, NEEDS_ID, type ReserveOptions } from '../options/reserve.ts'
import { checkOption } from '../options/validate.ts'
import { type ChargedIn, chargedIn } from '../several/charged-in.ts'
import type { answerOnce as AnswerOnce } from '../several/limit-once.ts'
import { Once, refuseRepeated } from '../several/once.ts'
import { chargedBy, checkReserved, estimateOf } from './estimate.ts'
import { checkCost, settle } from './settlement.ts'

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
   * back.
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

/** The reservation of a call whose id was used before. */
const OF_ANOTHER_CALL: Reservation = {
  commit: async () => refuseRepeated(),
  release: async () => refuseRepeated(),
}

const limitOnce = /* @__PURE__ */ onFirstUse(() => import('../several/limit-once.ts'))

async function answerOnce(...call: Parameters<typeof AnswerOnce>): Promise<Answered> {
  return (await limitOnce()).answerOnce(...call)
}

const named = /* @__PURE__ */ onFirstUse(() => import('./named.ts'))
const lists = /* @__PURE__ */ onFirstUse(() => import('./reserve-all.ts'))

/** Charges the call's rate as an estimate. */
export async function reserve(own: LimiterCall, options: ReserveOptions): Promise<Reserved> {
  const { checker, call } = own
  checkReserved(call)
  const estimate = { ...own, call: estimateOf(call) }
  if (options.id !== undefined) return reserveNamed(estimate, options)
  checkOption(options.expires === undefined, NEEDS_ID)
  const { once, tx } = options
  const isAlone = once === undefined && !checker.terms.blocks && !isFunded(own)
  const answered = await (isAlone ? answerTo(checker, estimate.call, tx) : answerOnce(estimate, once, tx))
  const { answer } = answered
  if (!answer.success) return answer
  if (answer.repeated) return { ...answer, ...OF_ANOTHER_CALL }
  const reservation = isFunded(own)
    ? await fundedReservation(own, answered, tx)
    : reservationOf(own, answered, await chargedIn(checker, tx))
  return { ...answer, ...reservation }
}

async function reserveNamed(estimate: LimiterCall, options: NamedReserveOptions): Promise<Reserved> {
  const { answered, commit } = await (await named()).reserveNamed(estimate, options)
  const { answer } = answered
  if (!answer.success) return answer
  return { ...answer, commit, release: (given) => commit(0, given) }
}

/** An estimate that funds have paid is a list of one. */
async function fundedReservation(
  own: LimiterCall,
  answered: Answered,
  tx: CallOptions['tx'],
): Promise<Reservation> {
  const settling = await (await lists()).reservationsOf([own], [answered], tx)
  const commit: Reservation['commit'] = async (actual, options = {}) => {
    checkOptions(options, CALLS.tx)
    const [settled] = await settling.commit([actual], options)
    return settled as Allowed
  }
  return { commit, release: (options) => commit(0, options) }
}

function reservationOf({ checker, call }: LimiterCall, answered: Answered, charged: ChargedIn): Reservation {
  const estimate = chargedBy(call, answered)
  const settling = new Once(checker, charged)
  const commit = async (actual: number, options: CallOptions = {}): Promise<Allowed> => {
    checkOptions(options, CALLS.call)
    const { limiter = call.limiter, tx } = options
    const isPresent = options.limiter !== undefined
    const settled = { estimate, actual, limiter, isPresent }
    checkCost(checker, actual, settled)
    return settling.run(tx, () => settle(checker, settled, tx))
  }
  return { commit, release: (options) => commit(0, options) }
}
