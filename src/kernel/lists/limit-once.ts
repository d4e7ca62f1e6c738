import type { Answered } from '../answers/answer.ts'
import type { Database } from '../database/database.ts'
import type { LimiterCall } from '../engine/checker.ts'
import { isFunded } from '../engine/funds.ts'
import { answerAtGate } from '../engine/gate.ts'
import { watched } from '../engine/layers.ts'
import type { Once } from '../options/calls.ts'
import { idCall } from './ids.ts'
import { decideAll } from './limit-all.ts'

// One call of one limit that uses up an id, which is a list, or whose key may be blocked. It is loaded together
// with `limitAll`.

export { limitRequests } from './limit-all.ts'

/** Decides the call if its key is not blocked, and if the id, if there is one, was not used before. */
export async function answerOnce(
  own: LimiterCall,
  once: Once | undefined,
  tx: Database | undefined,
): Promise<Answered> {
  const calls = [own]
  const { checker, call } = own
  const charged = once === undefined && isFunded(own) ? own.funds.charge(call, tx) : undefined
  if (charged) return charged
  if (once === undefined && checker.terms.blocks) {
    const answering = () => answerAtGate(checker, call, tx)
    return watched(calls, tx, answering, (answered) => [answered])
  }
  const [answered] = await decideAll(calls, tx, [await idCall(once, calls)])
  return answered as Answered
}
