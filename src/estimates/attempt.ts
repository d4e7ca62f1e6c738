import type { Answered } from '../kernel/answers/answer.ts'
import { retryAfterAll } from '../kernel/lists/requests.ts'

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
