import { type Answered, AnswerTo } from '../answers/answer.ts'
import { capacityOf } from '../answers/capacity.ts'
import { deniedUntil } from '../answers/made.ts'
import { isRequest, paidWith } from '../answers/outcome.ts'
import type { Denied } from '../answers/results.ts'
import { onceFor } from '../base/once.ts'
import { type Snapshot, whenAvailable } from '../limits/search.ts'
import { BLOCKED } from '../sql/own-prefixes.ts'
import { type Call, lookAt, neededBy, type Request } from '../store/call.ts'
import type { At, Bounds } from './bounds.ts'
import type { Checker, LimiterCall } from './checker.ts'
import { companionChecker } from './companion.ts'
import { degraded } from './layers.ts'
import { withinTimeout } from './within-timeout.ts'

// The gate of a limiter: a second limit, from a layer. A charge looks at the row of its key there, and is
// denied while nothing is left of it. A key without a row may pass.

/**
 * The checker of the gate's rows, which have a prefix of their own in the limiter's table. Undefined if the
 * limiter has no gate.
 */
export const gateOf: (owner: Checker) => Checker | undefined = /* @__PURE__ */ onceFor((owner: Checker) => {
  const { rows, terms } = owner
  const prefix = rows.namespace.prefix + BLOCKED
  return terms.gate && companionChecker(owner, { prefix, limiter: terms.gate })
})

/** The look at the gate of a key. Undefined if the limiter has no gate. */
export function lookAtGate(owner: Checker, key: string): LimiterCall<Request> | undefined {
  const { gate } = owner.terms
  const checker = gate && gateOf(owner)
  return checker && { checker, call: lookAt(key, gate) }
}

/** The denial of a call whose key is blocked. */
export interface Blocked extends Denied {
  readonly blockedUntil: number
}

/** The denial of the call at the gate. Undefined if it may pass, or if there is no gate. */
export async function denialAtGate(
  owner: Checker,
  call: Call,
  tx: At,
  bounds?: Bounds,
): Promise<Blocked | undefined> {
  const look = lookAtGate(owner, call.key)
  if (!look) return undefined
  const { decision } = await look.checker.decide(look.call, tx, bounds)
  const until = opensAt(look.call, decision)
  if (until === undefined) return undefined
  return { ...deniedUntil(until, decision.now, call.limiter.limit), blockedUntil: until }
}

/** When the gate lets its key pass. Undefined if it does so now. */
export function opensAt({ limiter }: Request, look: Snapshot): number | undefined {
  const until = whenAvailable(limiter, look, 1)
  return until > look.now ? until : undefined
}

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
