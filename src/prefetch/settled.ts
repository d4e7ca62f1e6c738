import { allowanceOf } from '../kernel/answers/answer.ts'
import { afterCalls, paymentOf } from '../kernel/answers/outcome.ts'
import type { Snapshot } from '../kernel/limits/search.ts'
import { type Decision, neededBy } from '../kernel/store/call.ts'
import type { Fetch } from './fetch.ts'
import { lastingMs, type Stock } from './stock.ts'

/** What the answer to a fetch means. */
export interface FetchOutcome {
  /** The decision on the call that has fetched. */
  readonly own: Decision
  /** The row after the charge. */
  readonly after: Snapshot
  /** What is left for other calls, if units were charged for them. */
  readonly stock: Stock | undefined
}

/**
 * Works out what the answer to a fetch means.
 *
 * @param carried How many of the units in hand count.
 * @param forMs How long a stock lasts at most.
 */
export function settled(
  { caller, plan, request }: Fetch,
  decision: Decision,
  carried: number,
  forMs: number,
): FetchOutcome {
  const { limiter } = request
  const { kind, numbers, tolerance } = limiter.algorithm
  const outcome = { call: request, decision, place: 0 }
  const isGranted = decision.granted > 0
  const after = afterCalls(outcome, isGranted ? 1 : 0)
  const has = carried + (isGranted ? paymentOf(outcome).rate : 0)
  const isEnough = has + tolerance >= neededBy(caller.request) && !decision.isOther
  const left = has - (isEnough ? Math.min(has, caller.request.rate) : 0)
  // Counts as if the units in hand had been given back. A bucket may get fewer of them at the time of
  // `retryAfter`.
  const counts = carried > 0 && (isEnough || kind === 'window')
  const { now, params } = decision
  const state = counts ? numbers.consume(decision.state, now, -carried, params, 0) : decision.state
  const own: Decision = { ...decision, state, granted: isEnough ? 1 : 0 }
  if (!isGranted && !(isEnough && left > 0)) return { own, after, stock: undefined }
  const { limit, remaining, reset } = allowanceOf(outcome, { thresholds: [], dryRun: false })
  // Each call reads it, and an object that no spread has made is read faster.
  const stock: Stock = {
    limiter,
    amount: left,
    left,
    sentAt: plan.sentAt,
    lastsMs: lastingMs(limiter, after, forMs),
    charged: after,
    decided: { state, now, params },
    facts: { limit, remaining, reset },
  }
  return { own, after, stock }
}
