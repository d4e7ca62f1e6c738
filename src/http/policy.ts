import type { LimitResult } from '../kernel/answers/results.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'

/** The limit of an answer: a `Ratelimit`, or its prefix with the `limiter` of the call. */
export interface Policy {
  /** The policy's name in headers and problem documents. */
  readonly prefix: string
  /** The limit that was checked. */
  readonly limiter: Limiter
}

/** The answer that matters to a client: the longest denial, or without denials the one with the least left. */
export function tightest<Answer extends LimitResult>(results: readonly [Answer, ...Answer[]]): Answer {
  return results.reduce((one, other) => (isTighter(other, one) ? other : one))
}

function isTighter(one: LimitResult, other: LimitResult): boolean {
  if (one.success !== other.success) return other.success
  return one.success ? one.remaining < other.remaining : one.retryAfter > other.retryAfter
}
