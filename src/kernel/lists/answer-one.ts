import type { Answered } from '../answers/answer.ts'
import { onFirstUse } from '../base/on-first-use.ts'
import type { LimiterCall } from '../engine/checker.ts'
import { isFunded } from '../engine/funds.ts'
import { answerTo } from '../engine/layers.ts'
import type { Once, TxOptions } from '../options/calls.ts'

const several = /* @__PURE__ */ onFirstUse(() => import('./limit-once.ts'))

interface Options extends TxOptions {
  readonly once?: Once | undefined
}

/**
 * Answers one call: alone, or together with the rows that it also needs. An answer from memory is no promise,
 * because waiting for one takes longer than the answer.
 */
export function answerOne(each: LimiterCall, { once, tx }: Options): Answered | Promise<Answered> {
  const { checker, call } = each
  const isAlone = once === undefined && !(checker.terms.blocks && call.purpose === 'take') && !isFunded(each)
  return isAlone ? answerTo(checker, call, tx) : answerTogether(each, { once, tx })
}

async function answerTogether(each: LimiterCall, { once, tx }: Options): Promise<Answered> {
  return (await several()).answerOnce(each, once, tx)
}
