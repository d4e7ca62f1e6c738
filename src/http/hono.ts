import type { Context, MiddlewareHandler } from 'hono'
import { matchedRoutes } from 'hono/route'
import type { RouterRoute } from 'hono/types'
import { findTargetHandler, isMiddleware } from 'hono/utils/handler'
import type { NamesOf } from '../kernel/base/check-options.ts'
import { guardOf } from './guard.ts'
import { GUARD_NAMES, type GuardOptions, type RequestAnswer, type RequestDenied } from './options.ts'
import { isPreflight } from './preflight.ts'
import { problemResponse } from './problem.ts'
import type { Route } from './routes.ts'

export type { GuardOptions, RequestAnswer, RequestDenied }

declare module 'hono' {
  interface ContextVariableMap {
    /** The answer of the last `rateLimit` that was checked; undefined if none was. */
    rateLimit: RequestAnswer | undefined
  }
}

/** Options of `rateLimit`. */
export type RateLimitOptions = GuardOptions<Context> & {
  /**
   * Whether a request has failed, for `count`. If it throws, the request stays charged, and `onError` gets the
   * error. Default: its status is 400 or higher.
   */
  readonly failed?: (c: Context) => boolean | Promise<boolean>
  /** The response to a denied request. Default: a problem document. */
  readonly onDenied?: (denied: RequestDenied, c: Context) => Response | Promise<Response>
}

const NAMES: NamesOf<RateLimitOptions> = { ...GUARD_NAMES, failed: true, onDenied: true }

/**
 * A middleware that limits requests. Handlers find the answer in `c.var.rateLimit`.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`
 *
 * @example
 * ```ts
 * import { Hono } from 'hono'
 * import { rateLimit } from 'drizzle-ratelimit/hono'
 * import { api } from './app.ts'
 *
 * const app = new Hono()
 * app.use(rateLimit({ ratelimit: api, key: (c) => c.req.header('x-api-key'), rate: { 'POST /reports': 10 } }))
 * ```
 */
export function rateLimit(options: RateLimitOptions): MiddlewareHandler {
  const routeOf = (c: Context) => ({ method: c.req.method, paths: pathsOf(c) })
  const guard = guardOf<Context>(options, routeOf, NAMES, (c) => isPreflight(c.req.raw))
  const { failed = (c) => c.res.status >= 400, onDenied } = options
  return async (c, next) => {
    const decided = await guard(c)
    if (decided.answer) c.set('rateLimit', decided.answer)
    if (!decided.success) {
      if (!onDenied) return problemResponse(decided.problem, decided.headers)
      c.status(decided.problem.status)
      const response = await onDenied(decided.answer, c)
      c.res = response
    } else {
      try {
        await next()
      } catch (thrown) {
        // Hono makes a response of an `Error` only, and passes on anything else that a handler throws.
        await decided.settle(() => true)
        throw thrown
      }
    }
    for (const [name, value] of Object.entries(decided.headers)) {
      // The application or another `rateLimit`, which came later, may have set the header already.
      if (!c.res.headers.has(name)) setHeader(c, name, value)
    }
    // Workers end work that the response does not wait for.
    if (decided.success) await decided.settle(() => failed(c))
    return undefined
  }
}

/**
 * Sets a header without `c.header`, which makes a new response from the body. On Bun, the new response would
 * lose its content type, because Bun chooses that by the text of the first one.
 */
function setHeader(c: Context, name: string, value: string): void {
  try {
    c.res.headers.set(name, value)
  } catch {
    // The headers of a fetched response cannot be changed. They include the content type.
    c.header(name, value)
  }
}

/**
 * The patterns that match, and the path. The pattern of a handler is the most exact one. Hono distinguishes
 * handlers from middlewares in the same way: a handler for all methods has no parameter `next`.
 */
function pathsOf(c: Context): Route['paths'] {
  const matched = matchedRoutes(c)
  const patterns = (ofHandlers: boolean, isWide: boolean) =>
    matched
      .filter((route) => isHandler(route) === ofHandlers && route.path.includes('*') === isWide)
      .map(({ path }) => path)
  return [
    ...patterns(true, false),
    patterns(false, false),
    c.req.path,
    ...patterns(true, true),
    patterns(false, true),
  ]
}

function isHandler({ method, handler }: RouterRoute): boolean {
  // Hono wraps the handlers of an app with its own `onError`.
  return method !== 'ALL' || !isMiddleware(findTargetHandler(handler))
}
