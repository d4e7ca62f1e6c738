import type { Outcome } from '../answers/outcome.ts'
import { freshState } from '../limits/limiter.ts'
import type { Call, Request } from '../store/call.ts'

/** Whether the database has to decide the call. */
export function isRequest(call: Call): call is Request {
  return call.limiter.stored
}

/** The outcome of a call without a limit: allowed, with nothing used. */
export function unlimitedOutcome(call: Call, now: number): Outcome {
  const { params } = call.limiter
  const state = freshState(call.limiter, now, params)
  return { call, decision: { now, state, params, granted: 1 }, place: 0 }
}
