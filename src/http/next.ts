import { type NextRequest, NextResponse } from 'next/server.js'
import type { NamesOf } from '../kernel/base/check-options.ts'
import { guardOf, type Refused } from './guard.ts'
import { isRedirect } from './next-redirect.ts'
import {
  type Eventually,
  GUARD_NAMES,
  type GuardOptions,
  type RequestAnswer,
  type RequestDenied,
} from './options.ts'
import { isPreflight } from './preflight.ts'
import { problemResponse } from './problem.ts'
import type { Route } from './routes.ts'
import { withHeaders } from './with-headers.ts'

export { type ActionCall, type ActionOptions, limitedAction } from './next-action.ts'
export type { GuardOptions, RequestAnswer, RequestDenied }

/** Options of `limitedRoute`. */
export type RateLimitOptions<Incoming extends Request = NextRequest> = GuardOptions<Incoming> & {
  /** The response to a denied request, with its own status. Default: a problem document. */
  readonly onDenied?: (denied: RequestDenied, request: Incoming) => Response | Promise<Response>
}

const NAMES: NamesOf<RateLimitOptions> = { ...GUARD_NAMES, onDenied: true }

/** Options of `rateLimit` in `proxy.ts`. */
export type ProxyOptions = RateLimitOptions & {
  // The proxy does not see the response to a request.
  readonly count?: never
  /**
   * Whether the route of this request has a limit of its own. The headers of the proxy would replace the
   * headers of that limit, so the proxy then sends its headers only with denials. Default: no route has one.
   */
  readonly hasOwnLimit?: (request: NextRequest) => Eventually<boolean>
}

const { count: _, ...COUNTLESS_NAMES } = NAMES

const PROXY_NAMES: NamesOf<ProxyOptions> = { ...COUNTLESS_NAMES, hasOwnLimit: true }

/**
 * Limits requests in `proxy.ts`, which was `middleware.ts` before Next 16. A denied request gets a problem
 * document, unless `onDenied` returns another response. Other requests get `NextResponse.next()` with the
 * headers of the limit.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`
 *
 * @example
 * ```ts
 * // proxy.ts
 * import { rateLimit } from 'drizzle-ratelimit/next'
 * import { api } from './app.ts'
 *
 * export const proxy = rateLimit({ ratelimit: api, key: (request) => request.headers.get('x-api-key') })
 * export const config = { matcher: '/api/:path*' }
 * ```
 */
export function rateLimit(options: ProxyOptions): (request: NextRequest) => Promise<Response> {
  const guard = guardOf<NextRequest>(options, routeOf, PROXY_NAMES, isPreflight)
  return async (request) => {
    const decided = await guard(request)
    if (!decided.success) return deny(decided, request, options)
    const sendsHeaders = !(await options.hasOwnLimit?.(request))
    return NextResponse.next(sendsHeaders ? { headers: decided.headers } : {})
  }
}

/**
 * Limits a route handler. Its second argument has the answer in `rateLimit`, together with the `params` of the
 * route.
 *
 * For `count`, a request has failed if its status is 400 or higher, or if the handler throws. A redirect is not
 * a failure.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`
 *
 * @example
 * ```ts
 * // app/api/reports/route.ts
 * import { limitedRoute } from 'drizzle-ratelimit/next'
 * import { api } from './app.ts'
 *
 * export const POST = limitedRoute(
 *   { ratelimit: api, key: (request) => request.headers.get('x-api-key'), rate: 10 },
 *   async (_request, { rateLimit }) => Response.json({ left: rateLimit?.remaining }),
 * )
 * ```
 */
export function limitedRoute<Incoming extends Request = NextRequest, Context extends object = object>(
  options: RateLimitOptions<Incoming>,
  handler: (
    request: Incoming,
    context: Context & { readonly rateLimit: RequestAnswer | undefined },
  ) => Response | Promise<Response>,
): (request: Incoming, context: Context) => Promise<Response> {
  const guard = guardOf<Incoming>(options, routeOf, NAMES, isPreflight)
  return async (request, context) => {
    const decided = await guard(request)
    if (!decided.success) return deny(decided, request, options)
    let failed = true
    try {
      const response = await handler(request, { ...context, rateLimit: decided.answer })
      failed = response.status >= 400
      return withHeaders(response, decided.headers)
    } catch (error) {
      failed = !isRedirect(error)
      throw error
    } finally {
      // A serverless function may end with its response, so the response waits.
      await decided.settle(() => failed)
    }
  }
}

async function deny<Incoming extends Request>(
  { answer, headers, problem }: Refused,
  request: Incoming,
  { onDenied }: RateLimitOptions<Incoming>,
): Promise<Response> {
  if (!onDenied) return problemResponse(problem, headers)
  return withHeaders(await onDenied(answer, request), headers)
}

function routeOf({ method, url, nextUrl }: Request & { readonly nextUrl?: NextRequest['nextUrl'] }): Route {
  const path = new URL(url).pathname
  // Next routes by nextUrl, without the locale and the base path of its configuration.
  return { method, paths: [path, nextUrl?.pathname ?? path] }
}
