import { RatelimitError } from '../errors.ts'
import { type Call, type Decision, isNeverDenied } from '../store/call.ts'

/**
 * The error of a call that the database refused, although the limit does not deny it. Undefined if it did not.
 */
export function refusalOf(call: Call, decision: Decision, place: number): RatelimitError | undefined {
  if (decision.isOther) return otherPlan()
  const isRefused = call.rate > 0 && isNeverDenied(call.purpose) && place >= decision.granted
  return isRefused ? tooMuch() : undefined
}

/** The error of a charge, or of what was added, that a count could not hold exactly. */
export function tooMuch(): RatelimitError {
  return new RatelimitError(
    'COUNT_OVERFLOW',
    'The count would exceed 2^53 - 1 and could not be exact. Nothing was charged.',
  )
}

/** The error of a call that would lose what was counted under another plan. */
export function otherPlan(): RatelimitError {
  return new RatelimitError(
    'OTHER_PLAN',
    "The key's row has another algorithm, or a period of another length. Nothing was charged. " +
      'Give the present limiter, or reset the key.',
  )
}
