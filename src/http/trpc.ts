import { TRPCError, type TRPCMiddlewareFunction } from '@trpc/server'
import type { NamesOf } from '../kernel/base/check-options.ts'
import { guardOf } from './guard.ts'
import { type GuardOptions, HEADLESS_NAMES, type RequestAnswer, type RequestDenied } from './options.ts'

export type { GuardOptions, RequestAnswer, RequestDenied }

/** A call of a procedure, as tRPC gives it to middlewares. */
export interface ProcedureCall<Context, Input = unknown> {
  /** The context of the call. */
  readonly ctx: Context
  /** The procedure, such as `orders.create`. */
  readonly path: string
  /** The kind of procedure. */
  readonly type: 'query' | 'mutation' | 'subscription'
  /** The input of the call, as far as it is parsed already. */
  readonly input: Input
}

/** Options of `rateLimit`. A table of rates has the paths of procedures. No headers are sent. */
export type RateLimitOptions<Context, Input = unknown> = GuardOptions<ProcedureCall<Context, Input>> & {
  readonly headers?: never
  /**
   * The error of a denied call. Default: `TOO_MANY_REQUESTS`, or `SERVICE_UNAVAILABLE` during an outage. Its
   * `cause` has the fields of the problem document, for your `errorFormatter`.
   */
  readonly onDenied?: (denied: RequestDenied, call: ProcedureCall<Context, Input>) => Error
}

const NAMES: NamesOf<RateLimitOptions<unknown>> = { ...HEADLESS_NAMES, onDenied: true }

/** The fields that the middleware adds to the context. */
export interface RateLimitContext {
  /** The answer of the last `rateLimit` that was checked; undefined if none was. */
  readonly rateLimit: RequestAnswer | undefined
}

/**
 * A middleware that limits procedures. Resolvers find the answer in `ctx.rateLimit`.
 *
 * For `count`, a call has failed if its resolver throws.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`
 *
 * @example
 * ```ts
 * import { initTRPC } from '@trpc/server'
 * import { rateLimit } from 'drizzle-ratelimit/trpc'
 * import { api } from './app.ts'
 *
 * const t = initTRPC.context<{ user: string }>().create()
 * const limited = t.procedure.use(rateLimit({ ratelimit: api, key: ({ ctx }) => ctx.user }))
 * ```
 */
export function rateLimit<Context, Input = unknown>(
  options: RateLimitOptions<Context, Input>,
): TRPCMiddlewareFunction<Context, unknown, object, RateLimitContext, Input> {
  const guard = guardOf<ProcedureCall<Context, Input>>(options, ({ path }) => ({ paths: [path] }), NAMES)
  const { onDenied } = options
  return async ({ ctx, path, type, input, next }) => {
    // The type is right, because no middleware before this one has changed the context's type.
    const call = { ctx: ctx as Context, path, type, input }
    const decided = await guard(call)
    if (!decided.success) {
      const { answer, problem } = decided
      if (onDenied) throw onDenied(answer, call)
      const code = problem.status === 429 ? 'TOO_MANY_REQUESTS' : 'SERVICE_UNAVAILABLE'
      throw new TRPCError({ code, message: problem.title, cause: problem })
    }
    const { rateLimit: before } = ctx as Partial<RateLimitContext>
    const result = await next({ ctx: { rateLimit: decided.answer ?? before } })
    await decided.settle(() => !result.ok)
    return result
  }
}
