import { type Answered, usageOf } from '../answers/answer.ts'
import type { Usage } from '../answers/results.ts'
import { onFirstUse } from '../base/once.ts'
import type { At } from '../engine/bounds.ts'
import type { Checker, LimiterCall } from '../engine/checker.ts'
import { isFunded } from '../engine/funds.ts'
import { answerTo } from '../engine/layers.ts'
import type { Once, TxOptions } from '../options/calls.ts'
import type { Call } from '../store/call.ts'

const several = /* @__PURE__ */ onFirstUse(() => import('./limit-all.ts'))

interface Options extends TxOptions {
  readonly once?: Once | undefined
}

/**
 * Answers a call on one row: alone, or together with the rows that it also needs. An answer from memory is no
 * promise, because waiting for one takes longer than the answer.
 */
export function answerOne(checker: Checker, call: Call, { once, tx }: Options): Answered | Promise<Answered> {
  const isAlone = once === undefined && !(checker.terms.gate && call.purpose === 'take')
  return isAlone ? answerTo(checker, call, tx) : answerTogether({ checker, call }, { once, tx })
}

/** The same for a call that funds may pay. */
export function answerEach(each: LimiterCall, options: Options): Answered | Promise<Answered> {
  return isFunded(each) ? answerTogether(each, options) : answerOne(each.checker, each.call, options)
}

async function answerTogether(each: LimiterCall, { once, tx }: Options): Promise<Answered> {
  return (await several()).answerOnce(each, once, tx)
}

const looking = /* @__PURE__ */ onFirstUse(() => import('../engine/look-all.ts'))

/** Looks at the key of a call, in a statement that calls share. If there is a gate, at that too. */
export async function lookAtOne(checker: Checker, look: Call, tx: At): Promise<Usage> {
  if (checker.terms.gate) {
    const [usage] = await (await looking()).lookAll(checker, [look], tx)
    return usage as Usage
  }
  const { call, decision } = await checker.decide(look, tx)
  return usageOf(call.limiter, decision)
}
