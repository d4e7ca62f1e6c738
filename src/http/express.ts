import type { NextFunction, Request, RequestHandler, Response } from 'express'
import type { NamesOf } from '../kernel/base/check-options.ts'
import { guardOf } from './guard.ts'
import { GUARD_NAMES, type GuardOptions, type RequestAnswer, type RequestDenied } from './options.ts'
import { isPreflight } from './preflight.ts'
import { PROBLEM_TYPE } from './problem.ts'
import type { Route } from './routes.ts'
import { settleAtEnd } from './settle-at-end.ts'

export { type Hits, RateLimitStore } from './express-store.ts'
export type { StoreConfig } from './store.ts'
export type { GuardOptions, RequestAnswer, RequestDenied }

declare global {
  namespace Express {
    interface Locals {
      /** The answer of the last `rateLimit` that was checked. */
      rateLimit?: RequestAnswer
    }
  }
}

/** Options of `rateLimit`. */
export type RateLimitOptions = GuardOptions<Request> & {
  /**
   * Whether a request has failed, for `count`. If it throws, the request stays charged, and `onError` gets the
   * error. Default: its status is 400 or higher.
   */
  readonly failed?: (response: Response) => boolean | Promise<boolean>
  /** Responds to a denied request. Status and headers are set already. Default: sends a problem document. */
  readonly onDenied?: (denied: RequestDenied, req: Request, res: Response, next: NextFunction) => unknown
}

const NAMES: NamesOf<RateLimitOptions> = { ...GUARD_NAMES, failed: true, onDenied: true }

/**
 * A middleware that limits requests. Handlers find the answer in `res.locals.rateLimit`.
 *
 * If the client disconnects before the response, the request always counts, with `'failures'` and with
 * `'successes'`.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`
 *
 * @example
 * ```ts
 * import { rateLimit } from 'drizzle-ratelimit/express'
 * import { clientKey } from 'drizzle-ratelimit/http'
 * import express from 'express'
 * import { api } from './app.ts'
 *
 * const app = express()
 * const key = (req: express.Request) => clientKey(req, { trustedHops: 0 }) // no proxy in front
 * app.use(rateLimit({ ratelimit: api, key, rate: { 'POST /reports': 10 } }))
 * ```
 */
export function rateLimit(options: RateLimitOptions): RequestHandler {
  const routeOf = (req: Request) => ({ method: req.method, paths: pathsOf(req) })
  const guard = guardOf<Request>(options, routeOf, NAMES, isPreflight)
  const { failed = ({ statusCode }) => statusCode >= 400, count, onDenied } = options
  return async (req, res, next) => {
    try {
      const decided = await guard(req)
      if (decided.success) settleAtEnd(res, decided, count, () => failed(res))
      // Another middleware has responded meanwhile, such as one for timeouts.
      if (res.writableEnded) return
      if (!res.headersSent) res.set(decided.headers)
      if (decided.answer) res.locals.rateLimit = decided.answer
      if (!decided.success) {
        const { answer, problem } = decided
        res.status(problem.status)
        if (onDenied) await onDenied(answer, req, res, next)
        else res.type(PROBLEM_TYPE).send(JSON.stringify(problem))
        return
      }
    } catch (error) {
      next(error)
      return
    }
    next()
  }
}

/** The route's pattern, or the path if the middleware runs for all routes. */
function pathsOf({ baseUrl, path, route }: Request): Route['paths'] {
  const declared: unknown = route?.path
  // A router's own path has no slash at its end.
  const patternOf = (own: string) => (own === '/' && baseUrl !== '' ? baseUrl : baseUrl + own)
  if (typeof declared === 'string') return [patternOf(declared)]
  // Express does not report which of several patterns matched.
  const several = Array.isArray(declared) ? declared.flat().filter((own) => typeof own === 'string') : []
  return [several.map(patternOf), baseUrl + path]
}
