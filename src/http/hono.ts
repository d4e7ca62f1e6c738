import type { Context, MiddlewareHandler } from 'hono'
import { matchedRoutes } from 'hono/route'
import type { RouterRoute } from 'hono/types'
import { findTargetHandler, isMiddleware } from 'hono/utils/handler'
import type { NamesOf } from '../options.ts'
import { guardOf } from './guard.ts'
import { GUARD_NAMES, type GuardOptions, type RequestAnswer, type RequestDenied } from './options.ts'
import { problemResponse } from './problem.ts'
import type { Route } from './routes.ts'

export type { GuardOptions, RequestAnswer, RequestDenied }

declare module 'hono' {
  interface ContextVariableMap {
    /** The answer of the last `rateLimit` that was asked; undefined if none was. */
    rateLimit: RequestAnswer | undefined
  }
}

/** How a route is limited. */
export type RateLimitOptions = GuardOptions<Context> & {
  /**
   * Whether a request has failed, for `count`. If it throws, the request stays charged, and `onError` is told.
   * Default: its status is 400 or higher.
   */
  readonly failed?: (c: Context) => boolean | Promise<boolean>
  /** Answers a denied request, by a response of its own. Default: a problem document. */
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
  const guard = guardOf<Context>(options, (c) => ({ method: c.req.method, paths: pathsOf(c) }), NAMES)
  const { failed = (c) => c.res.status >= 400, onDenied } = options
  return async (c, next) => {
    const decided = await guard(c)
    c.set('rateLimit', decided.answer)
    if (!decided.success) {
      if (!onDenied) return problemResponse(decided.problem, decided.headers)
      c.status(decided.problem.status)
      const response = await onDenied(decided.answer, c)
      c.res = response
    } else {
      await next()
    }
    for (const [name, value] of Object.entries(decided.headers)) {
      // What answered may have set it: another `rateLimit`, whose answer is the last one, or the application.
      if (!c.res.headers.has(name)) setHeader(c, name, value)
    }
    // Workers end what a response does not wait for.
    if (decided.success) await decided.settle(() => failed(c))
    return undefined
  }
}

/**
 * `c.header` makes a response of the body of the one before. On Bun it has another content type: Bun chooses
 * one by the text that a response was made with, and a stream has none.
 */
function setHeader(c: Context, name: string, value: string): void {
  try {
    c.res.headers.set(name, value)
  } catch {
    // The headers of a response that was fetched cannot be changed. They have its content type.
    c.header(name, value)
  }
}

/**
 * The patterns that match, and the path. What answers is a handler, so its pattern says most. Hono tells it
 * from a middleware as here: a handler of all methods takes no `next`.
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
  // The handlers of an app that has its own `onError` are wrapped.
  return method !== 'ALL' || !isMiddleware(findTargetHandler(handler))
}
