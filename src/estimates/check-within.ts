import { type Answered, AnswerTo } from '../kernel/answers/answer.ts'
import { type Outcome, paidWith } from '../kernel/answers/outcome.ts'
import { Timeout } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { denialAt } from '../kernel/engine/gate.ts'
import { degraded } from '../kernel/engine/layers.ts'
import { RunningTime } from '../kernel/engine/within-timeout.ts'
import { retryAfterAll } from '../kernel/lists/requests.ts'
import { giveBackUnread } from './give-back.ts'

/** The answers of one check of a wait. */
export interface Attempt {
  readonly answered: readonly Answered[]
  readonly success: boolean
  readonly retryAfter: number
  /** Whether `onError` has answered a call that may be charged all the same. */
  readonly mayBeCharged: boolean
}

/** @param isOnce Whether the calls have an id. Another check charges them no second time. */
export function attemptOf(answered: Answered[], isOnce: boolean): Attempt {
  const success = answered.every(({ answer }) => answer.success)
  const mayBeCharged = !isOnce && answered.some(({ answer, paid }) => answer.degraded && paid.rate !== 0)
  return { answered, success, retryAfter: retryAfterAll(answered), mayBeCharged }
}

/** The answer of a check, or the last denial if the check takes longer than the rest of the wait. */
export function checkWithin(
  leftMs: number,
  denial: Attempt | undefined,
  each: LimiterCall,
  signal: AbortSignal | undefined,
): Promise<Attempt> {
  const { checker, call } = each
  const { reporting } = checker.terms
  const ownMs = checker.alone.bounds?.time.ms ?? Number.POSITIVE_INFINITY
  const isRest = leftMs < ownMs
  const time = new RunningTime(new Timeout(Math.min(leftMs, ownMs)))
  const bounds = { time, signal, isRest }
  const giveBack = async (outcome: Outcome) => {
    // A late grant pays for the call if `onError` has let it pass.
    const hasPassed = await answering.then(
      ({ success }) => success,
      () => false,
    )
    if (!hasPassed) await giveBackUnread([each], [new AnswerTo(outcome, reporting)])
  }
  const check = async (): Promise<Attempt> => {
    try {
      const blocked = await denialAt(checker, call, undefined, bounds)
      if (blocked) return attemptOf([{ answer: blocked, paid: paidWith(0) }], false)
      signal?.throwIfAborted()
      const outcome = await checker.decide(call, undefined, { ...bounds, giveBack })
      return attemptOf([new AnswerTo(outcome, reporting)], false)
    } catch (error) {
      signal?.throwIfAborted()
      // A late grant is given back, so the last denial still holds.
      if (denial && isRest && time.isOver) return denial
      return attemptOf(await degraded(error, [each]), false)
    } finally {
      time.stop()
    }
  }
  const answering = check()
  return answering
}
