import { type Answered, usageOf } from '../answers/answer.ts'
import { afterCalls } from '../answers/outcome.ts'
import type { GrantResult } from '../answers/results.ts'
import type { Database } from '../database/database.ts'
import type { Checker, LimiterCall } from '../engine/checker.ts'
import { isFunded } from '../engine/funds.ts'
import { answerAtGate } from '../engine/gate.ts'
import { watched } from '../engine/layers.ts'
import { grantOf } from '../engine/upkeep.ts'
import type { Once } from '../options/calls.ts'
import type { Call } from '../store/call.ts'
import { found } from './enough.ts'
import { idCall } from './ids.ts'
import { decideAll } from './limit-all.ts'
import { askedOf, isRepeated, takeTogether } from './together.ts'

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

/** Adds the call's rate to undated credits if the id was not used before. During an outage it always throws. */
export async function grantOnce(
  checker: Checker,
  call: Call,
  once: Once,
  tx: Database | undefined,
): Promise<GrantResult> {
  const granting = { checker, call: grantOf(call) }
  const asked = askedOf([granting], tx, await idCall(once, [granting]))
  const row = found(asked.rowOf, granting)
  const decisions = await takeTogether(asked)
  const decision = found(decisions.looks, row)
  if (isRepeated(asked, decisions)) return { ...usageOf(call.limiter, decision), repeated: true }
  return usageOf(call.limiter, afterCalls({ call: row, decision }, 1))
}
