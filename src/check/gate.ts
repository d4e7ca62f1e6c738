import type { StoredLimiter } from '../algorithms/algorithm.ts'
import { lockout } from '../algorithms/lockout.ts'
import { whenAvailable } from '../algorithms/search.ts'
import type { Denied, Usage } from '../answers/results.ts'
import { MAX_MS } from '../duration.ts'
import type { Call, Request } from '../runtime/call.ts'
import { lookAt } from '../runtime/look-at.ts'
import { BLOCKED } from '../statements/own-prefixes.ts'
import { checkerBeside, forEachChecker } from './beside.ts'
import type { At, Bounds } from './bounds.ts'
import type { Checker } from './checker.ts'

// The gate of a limiter whose keys can be blocked: a lockout that no failure starts, with a row for each key
// that was blocked.

/** No count reaches it, and unlike Infinity it is a limit, so a block leaves nothing of it. */
const LIMIT: StoredLimiter = /* @__PURE__ */ lockout(Number.MAX_SAFE_INTEGER, 1, { block: 1, max: MAX_MS })

/** The checker of the gate's rows, which have a prefix of their own in the limiter's table. */
export const gateOf: (owner: Checker) => Checker = /* @__PURE__ */ forEachChecker((owner) =>
  checkerBeside(owner, { prefix: owner.config.namespace.prefix + BLOCKED, limiter: LIMIT }),
)

/** Looks whether the key may pass. In a list it denies the whole list if not. It writes nothing. */
export function passing(key: string): Request {
  return { ...changing(key), atLeast: 1 }
}

/** A call of the gate that is to change its row. */
export function changing(key: string): Request {
  return lookAt(key, LIMIT)
}

/** The denial of a call whose key is blocked. Undefined if it is not. */
export async function blockOn(
  owner: Checker,
  call: Call,
  tx: At,
  bounds?: Bounds,
): Promise<Denied | undefined> {
  const look = changing(call.key)
  const { decision } = await gateOf(owner).decide(look, tx, bounds)
  const reset = whenAvailable(LIMIT, decision, 1)
  const retryAfter = reset - decision.now
  return retryAfter > 0
    ? { success: false, limit: call.limiter.limit, remaining: 0, reset, retryAfter }
    : undefined
}

/** A usage as the block of the key leaves it. */
export function behind(usage: Usage, block: Usage): Usage {
  return block.remaining > 0 ? usage : { ...usage, remaining: 0, reset: Math.max(usage.reset, block.reset) }
}
