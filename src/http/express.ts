import type { NextFunction, Request, RequestHandler, Response } from 'express'
import { guardOf, type Passed } from './guard.ts'
import type { Eventually, GuardOptions, RequestAnswer, RequestDenied } from './options.ts'
import { PROBLEM_TYPE } from './problem.ts'

export { type Hits, RateLimitStore } from './express-store.ts'
export type { StoreConfig } from './store.ts'
export type { GuardOptions, RequestAnswer, RequestDenied }

declare global {
  namespace Express {
    interface Locals {
      /** The answer of the last `rateLimit` that was asked. */
      rateLimit?: RequestAnswer
    }
  }
}

/** How a route is limited. */
export type RateLimitOptions = GuardOptions<Request> & {
  /**
   * Whether a request has failed, for `count`. If it throws, the request stays charged, and `onError` is told.
   * Default: its status is 400 or higher.
   */
  readonly failed?: (response: Response) => boolean | Promise<boolean>
  /** Answers a denied request; status and headers are set. Default: sends a problem document. */
  readonly onDenied?: (denied: RequestDenied, req: Request, res: Response, next: NextFunction) => unknown
}

/**
 * A middleware that limits requests. Handlers find the answer in `res.locals.rateLimit`.
 *
 * A request whose client goes away before the response stays charged.
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
 * app.use(rateLimit({ ratelimit: api, key: (req) => clientKey(req), rate: { 'POST /reports': 10 } }))
 * ```
 */
export function rateLimit(options: RateLimitOptions): RequestHandler {
  const { failed = ({ statusCode }) => statusCode >= 400, onDenied } = options
  const guard = guardOf<Request>(options, ({ method, baseUrl, path, route }) => {
    return { method, paths: [baseUrl + (typeof route?.path === 'string' ? route.path : path)] }
  })
  return async (req, res, next) => {
    try {
      const decided = await guard(req)
      res.set(decided.headers)
      if (decided.answer) res.locals.rateLimit = decided.answer
      if (!decided.success) {
        const { answer, problem } = decided
        res.status(problem.status)
        if (onDenied) await onDenied(answer, req, res, next)
        else res.type(PROBLEM_TYPE).send(JSON.stringify(problem))
        return
      }
      settleAtEnd(res, decided, { finished: () => failed(res), left: () => options.count === 'failures' })
    } catch (error) {
      next(error)
      return
    }
    next()
  }
}

/** Whether a request has failed whose response was sent, and one whose client left before. */
interface Failed {
  finished(): Eventually<boolean>
  left(): boolean
}

function settleAtEnd(res: Response, { settle }: Passed, { finished, left }: Failed): void {
  const onFinish = () => {
    res.off('close', onLeave)
    void settle(finished)
  }
  const onLeave = () => {
    res.off('finish', onFinish)
    void settle(left)
  }
  res.once('finish', onFinish)
  res.once('close', onLeave)
}
