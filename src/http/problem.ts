import type { AnyCredits } from '../any-credits.ts'
import type { Denied, LimitResult } from '../kernel/answers/results.ts'
import { type HeaderOptions, headersOf, retryAfter } from './headers.ts'
import type { Policy } from './policy.ts'
import type { RateLimitHeaders } from './standards.ts'

/** A problem document by RFC 9457. It has the finite numbers of the denial. */
export interface Problem {
  /** The URL that names the kind of problem. */
  readonly type: string
  /** The kind of problem in words. */
  readonly title: string
  /** The status of the response. 503 during an outage. */
  readonly status: 429 | 503
  /** The capacity. */
  readonly limit?: number
  /** Whole units that are left. */
  readonly remaining?: number
  /** Unix milliseconds at which the call would be allowed. */
  readonly resetMs?: number
  /** Milliseconds until the call would be allowed. `Retry-After` has the same time in seconds. */
  readonly retryAfterMs?: number
  /** The prefixes of the limits that deny. */
  readonly 'violated-policies'?: readonly string[]
}

/** The problem types that the draft of the headers defines. */
const TYPES = 'https://iana.org/assignments/http-problem-types'

/** The problem document for a denial. Its type shows whether the client or an outage is the cause. */
export function problemOf(
  denied: Pick<Denied, 'retryAfter'> & Partial<Denied>,
  violated: readonly string[] = [],
): Problem {
  const { degraded, limit, remaining, reset: resetMs, retryAfter: retryAfterMs } = denied
  const known = degraded ? { limit, retryAfterMs } : { limit, remaining, resetMs, retryAfterMs }
  const numbers = Object.entries(known)
  return {
    ...(degraded
      ? {
          type: `${TYPES}#temporary-reduced-capacity`,
          title: 'Request cannot be satisfied due to temporary server capacity constraints',
          status: 503,
        }
      : {
          type: `${TYPES}#quota-exceeded`,
          title: 'Request cannot be satisfied as assigned quota has been exceeded',
          status: 429,
        }),
    ...Object.fromEntries(numbers.filter(([, value]) => Number.isFinite(value))),
    ...(violated.length > 0 ? { 'violated-policies': violated } : {}),
  }
}

export const PROBLEM_TYPE = 'application/problem+json'

/** The response with a problem document. */
export function problemResponse(problem: Problem, headers: RateLimitHeaders): Response {
  return new Response(JSON.stringify(problem), {
    status: problem.status,
    headers: { ...headers, 'Content-Type': PROBLEM_TYPE },
  })
}

/** A denial of several limits together, of a slot or of a start: no limit has its headers. */
interface OtherDenial {
  readonly success: boolean
  readonly retryAfter: number
  readonly results?: readonly LimitResult[]
  readonly limit?: never
}

/** The response to a denial of `limitAll`, `reserveAll`, `spend`, `acquire` or `schedule`. */
export function tooManyRequests(denied: OtherDenial): Response
/**
 * The response to a denied request: 429 with a problem document, `Retry-After`, and the headers of the limit if
 * it is given. During an outage (`degraded`) it is 503, because the client has exceeded no limit.
 *
 * @param policy The limit: the `Ratelimit` itself, or `{ prefix, limiter }` for a call with a `limiter`.
 *
 * @example
 * ```ts
 * import { tooManyRequests } from 'drizzle-ratelimit/http'
 * import { api } from './app.ts'
 *
 * export async function GET(): Promise<Response> {
 *   const answer = await api.limit('user:123')
 *   return answer.success ? new Response('hello') : tooManyRequests(answer, api)
 * }
 * ```
 */
export function tooManyRequests(
  denied: Denied,
  policy?: Policy | AnyCredits,
  options?: HeaderOptions,
): Response
export function tooManyRequests(
  denied: Denied | OtherDenial,
  policy?: Policy | AnyCredits,
  options?: HeaderOptions,
): Response {
  if (denied.limit === undefined) {
    const { retryAfter: wait, results = [] } = denied
    const isAway = results.some(({ degraded }) => degraded)
    const problem = problemOf({ retryAfter: wait, ...(isAway ? { degraded: true } : {}) })
    return problemResponse(problem, retryAfter(denied))
  }
  return policy
    ? problemResponse(problemOf(denied, [policy.prefix]), headersOf(denied, policy, options))
    : problemResponse(problemOf(denied), retryAfter(denied))
}
