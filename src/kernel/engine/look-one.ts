import { usageOf } from '../answers/answer.ts'
import type { Usage } from '../answers/results.ts'
import { onFirstUse } from '../base/once.ts'
import type { Call } from '../store/call.ts'
import type { At } from './bounds.ts'
import type { Checker } from './checker.ts'

const looking = /* @__PURE__ */ onFirstUse(() => import('./look-all.ts'))

/** Looks at the key of a call, in a statement that calls share. If there is a gate, at that too. */
export async function lookAtOne(checker: Checker, look: Call, tx: At): Promise<Usage> {
  if (checker.terms.gate) {
    const [usage] = await (await looking()).lookAll(checker, [look], tx)
    return usage as Usage
  }
  const { call, decision } = await checker.decide(look, tx)
  return usageOf(call.limiter, decision)
}
