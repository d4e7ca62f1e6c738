import type { Answered } from '../answers/answer.ts'
import { refundableUntilOf, windowEndOf } from '../answers/refundable.ts'
import { RatelimitError } from '../errors.ts'
import type { Call } from '../runtime/call.ts'
import { type Estimate, layoutOf } from './settlement.ts'

// A call that charges an estimate, and what is kept of it.

/** @throws RatelimitError `INVALID_RATE` */
export function checkReserved(call: Call): void {
  if (call.rate < 0) throw new RatelimitError('INVALID_RATE', 'The rate of a reservation must be 0 or more.')
}

/** The call that charges its rate as an estimate. */
export function estimateOf(call: Call): Call {
  return { ...call, reserved: call.rate }
}

/** The estimate of a call that was answered. */
export function chargedBy({ key, limiter }: Call, { answer, paid }: Answered): Estimate {
  const passed = answer.success && answer.wouldDeny
  const how = passed ? 'passed' : answer.degraded ? 'degraded' : 'charged'
  const refundableUntil = refundableUntilOf(limiter, answer)
  const windowEnd = windowEndOf(limiter, paid)
  return { key, paid, refundableUntil, windowEnd, how, limit: limiter.limit, layout: layoutOf(limiter) }
}
