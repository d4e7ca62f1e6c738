import type { Answered } from '../answers/answer.ts'
import type { LimitAllResult } from '../answers/results.ts'
import type { Database } from '../database/database.ts'
import type { At } from '../engine/bounds.ts'
import type { LimiterCall } from '../engine/checker.ts'
import { isFunded } from '../engine/funds.ts'
import { answerAtGate } from '../engine/gate.ts'
import { degraded, watched } from '../engine/layers.ts'
import type { Report } from '../engine/watch.ts'
import { ownError } from '../errors.ts'
import type { AllOptions, Once, Requested } from '../options/calls.ts'
import { checkOption } from '../options/validate.ts'
import { answersIn } from './answers.ts'
import { askedOf } from './combined-calls.ts'
import { idCall } from './ids.ts'
import { callsOf, combined, wasRepeated } from './requests.ts'
import { takeTogether } from './together.ts'

/** Decides all requests together: all are consumed, or none. */
export async function limitRequests<Request extends Requested>(
  requests: readonly Request[],
  { tx, once, signal }: AllOptions,
): Promise<LimitAllResult<Request>> {
  checkOption(signal === undefined, 'signal ends a wait, so it needs wait.')
  const calls = await callsOf(requests)
  try {
    return combined(requests, await decideAll(calls, tx, once && [await idCall(once, calls)]))
  } catch (error) {
    throw ownError(error)
  }
}

/**
 * Decides one call that uses up an id, which is a list, or that has to pass a gate, or that funds pay. It is
 * charged if it may pass its gate, and if the id, if there is one, was not used before.
 */
export async function answerOnce(
  own: LimiterCall,
  once: Once | undefined,
  tx: Database | undefined,
): Promise<Answered> {
  const calls = [own]
  const { checker, call } = own
  if (once === undefined) {
    const isOfFunds = isFunded(own)
    const charged = isOfFunds && own.funds.charge(call, tx)
    if (charged) return charged
    if (checker.terms.gate && !isOfFunds) {
      const answering = () => answerAtGate(checker, call, tx)
      return watched(calls, tx, answering, (answered) => [answered])
    }
  }
  const [answered] = await decideAll(calls, tx, [await idCall(once, calls)])
  return answered as Answered
}

/**
 * The answers to calls of which all are consumed, or none, in the order of the calls. If all are allowed, each
 * answer has its payment.
 *
 * @param ids The calls that use up ids. If they were used before, the answers show the present state.
 * @throws RatelimitError `INVALID_OPTION` for no calls, and for limiters of different databases.
 */
export function decideAll(
  calls: readonly LimiterCall[],
  tx: Database | undefined,
  ids: readonly (LimiterCall | undefined)[] = [],
): Promise<Answered[]> {
  return watched(calls, tx, () => answerTogether(calls, tx, ids), reportsOf)
}

/** A repeated call has charged nothing. */
export function reportsOf(answered: readonly Answered[]): Report[] {
  return answered.map(({ answer }) => ({ answer, rate: wasRepeated(answer) ? 0 : undefined }))
}

/** The answers to calls that were decided once. During an outage, `onError` answers. */
export async function answerTogether(
  calls: readonly LimiterCall[],
  tx: At,
  ids: readonly (LimiterCall | undefined)[],
): Promise<Answered[]> {
  try {
    const funded = calls.find(isFunded)
    if (funded) return await funded.funds.chargeAll(calls, tx, ids)
    // The way of `chargeAll` would cost a list without funds a third more.
    const asked = askedOf(calls, tx, ids)
    return answersIn(asked, await takeTogether(asked))
  } catch (error) {
    const [first] = calls
    if (!first || first.checker.joined(tx)) throw error
    return degraded(error, calls)
  }
}
