import type { Answered } from '../answers/answer.ts'
import type { Database } from '../database/database.ts'
import type { LimiterCall } from '../engine/checker.ts'
import { isFunded } from '../engine/funds.ts'
import { watched } from '../engine/layers.ts'
import type { Once } from '../options/calls.ts'
import { answerAtGate } from './at-gate.ts'
import { idCall } from './ids.ts'
import { decideAll } from './limit-all.ts'

// One call that uses up an id, which is a list, or that has to pass a gate, or that funds pay. It is loaded
// together with `limitAll`.

export { limitRequests } from './limit-all.ts'

/** Decides the call, if it may pass its gate, and if the id, if there is one, was not used before. */
export async function answerOnce(
  own: LimiterCall,
  once: Once | undefined,
  tx: Database | undefined,
): Promise<Answered> {
  const calls = [own]
  const { checker, call } = own
  if (once === undefined) {
    const charged = isFunded(own) ? own.funds.charge(call, tx) : undefined
    if (charged) return charged
    if (checker.terms.gate) {
      const answering = () => answerAtGate(checker, call, tx)
      return watched(calls, tx, answering, (answered) => [answered])
    }
  }
  const [answered] = await decideAll(calls, tx, [await idCall(once, calls)])
  return answered as Answered
}
