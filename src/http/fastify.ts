import type { FastifyReply, FastifyRequest } from 'fastify'
import type { NamesOf } from '../kernel/base/check-options.ts'
import { guardOf } from './guard.ts'
import { GUARD_NAMES, type GuardOptions, type RequestAnswer, type RequestDenied } from './options.ts'
import { isPreflight } from './preflight.ts'
import { PROBLEM_TYPE } from './problem.ts'
import type { Route } from './routes.ts'
import { settleAtEnd } from './settle-at-end.ts'

export { type Callback, type RateLimitStore, type RouteOptions, rateLimitStore } from './fastify-store.ts'
export type { StoreConfig } from './store.ts'
export type { GuardOptions, RequestAnswer, RequestDenied }

declare module 'fastify' {
  interface FastifyRequest {
    /** The answer of the last `rateLimit` that was checked; undefined if none was. */
    rateLimit?: RequestAnswer | undefined
  }
}

/** Options of `rateLimit`. */
export type RateLimitOptions = GuardOptions<FastifyRequest> & {
  /**
   * Whether a request has failed, for `count`. If it throws, the request stays charged, and `onError` gets the
   * error. Default: its status is 400 or higher.
   */
  readonly failed?: (reply: FastifyReply) => boolean | Promise<boolean>
  /** Responds to a denied request. Status and headers are set already. Default: sends a problem document. */
  readonly onDenied?: (denied: RequestDenied, request: FastifyRequest, reply: FastifyReply) => unknown
}

const NAMES: NamesOf<RateLimitOptions> = { ...GUARD_NAMES, failed: true, onDenied: true }

/**
 * A hook that limits requests, for `onRequest`, `preHandler` and the hooks between them. Handlers find the
 * answer in `request.rateLimit`. `rateLimitStore` is for applications that have @fastify/rate-limit.
 *
 * If the client disconnects before the response, the request always counts, with `'failures'` and with
 * `'successes'`.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`
 *
 * @example
 * ```ts
 * import { rateLimit } from 'drizzle-ratelimit/fastify'
 * import { clientKey } from 'drizzle-ratelimit/http'
 * import fastify, { type FastifyRequest } from 'fastify'
 * import { api } from './app.ts'
 *
 * const app = fastify()
 * const key = (request: FastifyRequest) => clientKey(request, { trustedHops: 0 }) // no proxy in front
 * app.addHook('onRequest', rateLimit({ ratelimit: api, key, rate: { 'POST /reports': 10 } }))
 * ```
 */
export function rateLimit(
  options: RateLimitOptions,
): (request: FastifyRequest, reply: FastifyReply) => Promise<unknown> {
  const guard = guardOf<FastifyRequest>(options, routeOf, NAMES, isPreflight)
  const { failed = ({ statusCode }) => statusCode >= 400, count, onDenied } = options
  return async (request, reply) => {
    const decided = await guard(request)
    if (decided.success) settleAtEnd(reply.raw, decided, count, () => failed(reply))
    // Somebody else has responded meanwhile, such as a timeout.
    if (reply.sent) return reply
    reply.headers(decided.headers)
    if (decided.answer) request.rateLimit = decided.answer
    if (decided.success) return undefined
    const { answer, problem } = decided
    reply.code(problem.status)
    if (onDenied) await onDenied(answer, request, reply)
    else reply.type(PROBLEM_TYPE).send(JSON.stringify(problem))
    return reply
  }
}

/** The route's pattern, and the path, which is all that a request without a route has. */
function routeOf({ method, routeOptions, url }: FastifyRequest): Route {
  const { url: pattern } = routeOptions
  const [path = ''] = url.split('?', 1)
  return { method, paths: pattern === undefined ? [path] : [pattern, path] }
}
