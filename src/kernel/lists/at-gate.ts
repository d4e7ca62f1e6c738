import { type Answered, AnswerTo } from '../answers/answer.ts'
import { capacityOf } from '../answers/capacity.ts'
import { isRequest, paidWith } from '../answers/outcome.ts'
import type { At, Bounds } from '../engine/bounds.ts'
import type { Checker } from '../engine/checker.ts'
import { type Blocked, denialAtGate } from '../engine/gate.ts'
import { degraded } from '../engine/layers.ts'
import { withinTimeout } from '../engine/within-timeout.ts'
import { whenAvailable } from '../limits/search.ts'
import { type Call, neededBy } from '../store/call.ts'

/**
 * The answer to a charge that is denied while its key is blocked. The look at the gate is a statement of its
 * own, so that equal calls share it, as they share the charge. During an outage, `onError` answers.
 */
export async function answerAtGate(owner: Checker, call: Call, tx: At): Promise<Answered> {
  try {
    return await withinTimeout([owner], tx, (at) => answerIn(owner, call, at))
  } catch (error) {
    if (owner.joined(tx)) throw error
    return (await degraded(error, [{ checker: owner, call }]))[0] as Answered
  }
}

async function answerIn(owner: Checker, call: Call, at: At): Promise<Answered> {
  const denied = await denialAt(owner, call, at)
  if (denied) return { answer: denied, paid: paidWith(0) }
  return new AnswerTo(await owner.decide(call, at), owner.terms.reporting)
}

/**
 * The denial of a call whose key is blocked, which is longer if the limit has too little at the end of the
 * block. Undefined if the call may pass.
 */
export async function denialAt(
  owner: Checker,
  call: Call,
  at: At,
  bounds?: Bounds,
): Promise<Blocked | undefined> {
  const blocked = await denialAtGate(owner, call, at, bounds)
  // Without a row, only the clock of this machine would tell the time.
  if (!blocked || !isRequest(call)) return blocked
  bounds?.signal?.throwIfAborted()
  const { limiter } = call
  const { decision } = await owner.decide({ ...call, rate: 0, purpose: 'look' }, at, bounds)
  if (blocked.blockedUntil <= decision.now) return undefined
  const reset = Math.max(blocked.blockedUntil, whenAvailable(limiter, decision, neededBy(call)))
  return { ...blocked, limit: capacityOf(limiter, decision), reset, retryAfter: reset - decision.now }
}
