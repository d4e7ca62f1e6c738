import { type Answered, AnswerTo } from '../answers/answer.ts'
import { capacityOf } from '../answers/capacity.ts'
import { deniedUntil } from '../answers/made.ts'
import type { Denied } from '../answers/results.ts'
import { onceFor } from '../base/once.ts'
import type { StoredLimiter } from '../limits/algorithm.ts'
import { type Snapshot, whenAvailable } from '../limits/search.ts'
import { BLOCKED } from '../sql/own-prefixes.ts'
import { type Call, lookAt, neededBy, type Request } from '../store/call.ts'
import type { At, Bounds } from './bounds.ts'
import type { Checker } from './checker.ts'
import { companionChecker } from './companion.ts'
import { degraded } from './layers.ts'
import { isRequest } from './unlimited.ts'
import { withinTimeout } from './within-timeout.ts'

// The gate of a limiter whose keys can be blocked: a row for each key that was blocked.

/** The limiter of the gate's rows, from the layer that lets keys be blocked. */
function limiterOfGate({ terms }: Checker): StoredLimiter {
  if (!terms.blocks) throw new TypeError('The limiter has no gate.')
  return terms.blocks
}

/** The checker of the gate's rows, which have a prefix of their own in the limiter's table. */
export const gateOf: (owner: Checker) => Checker = /* @__PURE__ */ onceFor((owner) =>
  companionChecker(owner, { prefix: owner.rows.namespace.prefix + BLOCKED, limiter: limiterOfGate(owner) }),
)

/** Looks whether the key may pass. In a list it denies the whole list if not. It writes nothing. */
export function passing(owner: Checker, key: string): Request {
  return { ...changingRequest(owner, key), atLeast: 1 }
}

/** A call of the gate that is to change its row. */
export function changingRequest(owner: Checker, key: string): Request {
  return lookAt(key, limiterOfGate(owner))
}

/** The denial of a call whose key is blocked. */
export interface Blocked extends Denied {
  readonly blockedUntil: number
}

/** The denial of the call if its key is blocked. Undefined if it is not. */
export async function blockOn(
  owner: Checker,
  call: Call,
  tx: At,
  bounds?: Bounds,
): Promise<Blocked | undefined> {
  const look = changingRequest(owner, call.key)
  const { decision } = await gateOf(owner).decide(look, tx, bounds)
  const until = endOfBlock(look, decision)
  if (until === undefined) return undefined
  return { ...deniedUntil(until, decision.now, call.limiter.limit), blockedUntil: until }
}

/**
 * The answer to a call that is denied while its key is blocked. The look at the gate is a statement of its own,
 * so that equal calls share it, as they share the charge. During an outage, `onError` answers.
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
  const blocked = call.purpose === 'take' ? await blockOn(owner, call, at) : undefined
  const denied = blocked && (await denialBehind(blocked, owner, call, at))
  if (denied) return { answer: denied, paid: { rate: 0, windowStart: null, usedBefore: null } }
  return new AnswerTo(await owner.decide(call, at), owner.terms.reporting)
}

/** The denial, which is longer if the limit has too little then. Undefined if the block has ended by now. */
async function denialBehind(
  blocked: Blocked,
  owner: Checker,
  call: Call,
  at: At,
): Promise<Blocked | undefined> {
  // Without a row, only the clock of this machine would tell the time.
  if (!isRequest(call)) return blocked
  const { limiter } = call
  const { decision } = await owner.decide({ ...call, rate: 0, purpose: 'look' }, at)
  if (blocked.blockedUntil <= decision.now) return undefined
  const reset = Math.max(blocked.blockedUntil, whenAvailable(limiter, decision, neededBy(call)))
  return { ...blocked, limit: capacityOf(limiter, decision), reset, retryAfter: reset - decision.now }
}

/** When the block in a gate's row ends. Undefined if the row has none. */
export function endOfBlock({ limiter }: Request, look: Snapshot): number | undefined {
  const until = whenAvailable(limiter, look, 1)
  return until > look.now ? until : undefined
}
