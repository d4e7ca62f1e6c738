import type { Denied } from '../check/results.ts'
import { type HeaderOptions, headersOf, retryAfter } from './headers.ts'
import type { Policy } from './policy.ts'
import type { RateLimitHeaders } from './standards.ts'

/** A problem document by RFC 9457. Its numbers are those of the denial; one that is `Infinity` is left out. */
export interface Problem {
  /** The address that names the kind of problem. */
  readonly type: string
  /** The kind of problem in words. */
  readonly title: string
  /** The status of the response: 503 if the database was away. */
  readonly status: 429 | 503
  /** The capacity. */
  readonly limit?: number
  /** Whole units that are left. */
  readonly remaining?: number
  /** Unix milliseconds. */
  readonly reset?: number
  /** Milliseconds. */
  readonly retryAfter?: number
  /** The prefixes of the limits that deny. */
  readonly 'violated-policies'?: readonly string[]
}

/** The problem types that the draft of the headers defines. */
const TYPES = 'https://iana.org/assignments/http-problem-types'

/** What a denied client is told. A client is not to blame for a database that is away. */
export function problemOf(denied: Denied, violated: readonly string[] = []): Problem {
  const { degraded, limit, remaining, reset, retryAfter } = denied
  const numbers = Object.entries(degraded ? { limit, retryAfter } : { limit, remaining, reset, retryAfter })
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

/**
 * A response to a denied request: 429 with a problem document, `Retry-After`, and the headers of the limit if
 * it is given. If the database was away (`degraded`) it is 503, because the client has exceeded nothing.
 *
 * @param policy The limit: the `Ratelimit` itself, or `{ prefix, limiter }` for a call that named a limiter.
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
export function tooManyRequests(denied: Denied, policy?: Policy, options?: HeaderOptions): Response {
  return policy
    ? problemResponse(problemOf(denied, [policy.prefix]), headersOf(denied, policy, options))
    : problemResponse(problemOf(denied), retryAfter(denied))
}
