import type { AnyCredits } from '../any-credits.ts'
import type { Denied, LimitResult } from '../kernel/answers/results.ts'
import { checkSwitch, type NamesOf } from '../kernel/base/check-options.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'
import type { Once } from '../kernel/options/calls.ts'
import { checkFunction, wordOf } from '../kernel/options/checks.ts'
import type { Ratelimit } from '../ratelimit.ts'
import type { RateTable } from './routes.ts'
import type { HeaderStandards } from './standards.ts'

/** A value, or a promise of one. */
export type Eventually<T> = T | Promise<T>

/** One limit of a route. `Context` is the request or context that the framework gives to its handlers. */
export interface RouteLimit<Context> {
  /** The limiter, or credits. */
  readonly ratelimit: Ratelimit | AnyCredits
  /**
   * The limited key, such as a user. A request without a key is an error, so that such requests never share
   * one. Use `skip` to let them pass, or give them a key of their own.
   */
  readonly key: (context: Context) => Eventually<string | null | undefined>
  /** The limit for this request, such as a customer's plan. Not for credits. Default: the `Ratelimit`'s. */
  readonly limiter?: Limiter | ((context: Context) => Eventually<Limiter | undefined>)
  /** The cost of the request. 0 passes without a query. Default: `1`. */
  readonly rate?: number | RateTable | ((context: Context) => Eventually<number>)
  /**
   * With `count: 'failures'`: whether a success also forgets the failures of the key before it. Use it for an
   * account, and not for an address: its owner could sign in to go on guessing. Not for credits. Default:
   * `false`.
   */
  readonly resetOnSuccess?: boolean
}

export const ROUTE_LIMIT_NAMES: NamesOf<RouteLimit<unknown>> = {
  ratelimit: true,
  key: true,
  limiter: true,
  rate: true,
  resetOnSuccess: checkSwitch,
}

interface OneLimit<Context> extends RouteLimit<Context> {
  readonly limits?: never
}

interface SeveralLimits<Context> {
  /** Several limits. All are charged, or none, by `limitAll`. */
  readonly limits: readonly RouteLimit<Context>[]
  readonly ratelimit?: never
  readonly key?: never
  readonly limiter?: never
  readonly rate?: never
  readonly resetOnSuccess?: never
}

interface EachRequest<Context> {
  /**
   * Whether a request passes without a query. Default: preflights of CORS do, in Express, Fastify, Hono and
   * Next. A handler that works on OPTIONS too needs `() => false`.
   */
  readonly skip?: (context: Context) => Eventually<boolean>
  /**
   * The standard of the headers, or several to send all of them. `false` sends only `Retry-After`. Default:
   * `'draft-8'`.
   */
  readonly headers?: HeaderStandards | false
  /**
   * Gets each error of the database, also of settling, and each error of `failed`. Its result decides about the
   * request, if that is still open; any other result throws the error. It is not called for mistakes in the
   * options. Default: `'throw'`, the framework's own error handling.
   */
  readonly onError?: (error: unknown, context: Context) => Eventually<'throw' | 'allow' | 'deny'>
}

interface CountsAll<Context> {
  readonly count?: 'all'
  /**
   * The id of a request that the client may send again, such as its `Idempotency-Key`: it is charged once, and
   * passes again without a charge. So use it only if your handler does not do the work again either. Put the
   * customer into the id, because all keys share the ids. A prefix and an id that have more than about 1,000
   * bytes together throw, so refuse keys of more than 200 characters before. With several limits the ids belong
   * to the first that costs something. Undefined for a request that is always charged.
   */
  readonly once?: (context: Context) => Eventually<Once | undefined>
}

interface CountsSome {
  /**
   * Which requests count. Every request is charged first, so that concurrent requests cannot pass together.
   * When the response is known, a request that does not count is given back to the window that paid. With
   * `'failures'` and `'successes'`, answers have no `crossed`, and in a calendar window or undated credits a
   * request that counts needs one more statement. Default: `'all'`, every request counts.
   */
  readonly count: 'failures' | 'successes'
  /** A request that was given back has used its id, so it would be free when it is sent again. */
  readonly once?: never
}

/** The options of every adapter. */
export type GuardOptions<Context> = EachRequest<Context> &
  // First, so that the compiler names a missing `key`, and not `count`.
  (OneLimit<Context> | SeveralLimits<Context>) &
  (CountsAll<Context> | CountsSome)

/** The options of adapters that send no headers. */
export const HEADLESS_NAMES: NamesOf<GuardOptions<unknown> & { readonly headers?: never }> = {
  ...ROUTE_LIMIT_NAMES,
  limits: true,
  skip: true,
  count: wordOf('all', 'failures', 'successes'),
  once: checkFunction,
  onError: true,
}

export const GUARD_NAMES: NamesOf<GuardOptions<unknown>> = { ...HEADLESS_NAMES, headers: true }

/** All answers to a request. */
interface RequestAnswers {
  /** The answers in the order of the limits, without limits where the request costs nothing. */
  readonly results: readonly LimitResult[]
}

/** The answer to a request. With several limits it is the tightest answer, and `results` has all of them. */
export type RequestAnswer = LimitResult & RequestAnswers

/** The answer to a denied request. */
export type RequestDenied = Denied & RequestAnswers
