import { ALL_GRANTS } from '../algorithms/grant.ts'
import type { LimitResult } from '../answers/results.ts'
import { onceFor } from '../base/once-for.ts'
import { Checker } from '../check/checker.ts'
import { answerTo } from '../check/layers.ts'
import { lookAt } from '../runtime/look-at.ts'
import { takeGrantsStatement } from '../statements/take-grants.ts'
import type { Account } from './seen.ts'

/** The checker of calls that take from all grants of a key. They share statements as other calls do. */
const takerOf = onceFor(
  ({ rows, terms, alone }: Checker) =>
    new Checker({
      ...{ rows: { ...rows, takeStatement: takeGrantsStatement }, terms: { ...terms, limiter: ALL_GRANTS } },
      alone,
    }),
)

/** Takes a rate from the grants in their order, or takes nothing. */
export async function takeShared({ checker, key }: Account, rate: number): Promise<LimitResult> {
  const call = { ...lookAt(key, ALL_GRANTS), rate, purpose: 'take' } as const
  return (await answerTo(takerOf(checker), call, undefined)).answer
}
