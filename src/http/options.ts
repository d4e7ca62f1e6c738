import type { Limiter } from '../algorithms/algorithm.ts'
import type { Denied, LimitResult } from '../check/results.ts'
import type { NamesOf } from '../options.ts'
import type { Ratelimit } from '../ratelimit.ts'
import type { RateTable } from './routes.ts'
import type { HeaderStandards } from './standards.ts'

/** What a function of the application may return. */
export type Eventually<T> = T | Promise<T>

/** One limit of a route. `Context` is what the framework gives its handlers: a request, or a context. */
export interface RouteLimit<Context> {
  readonly ratelimit: Ratelimit
  /**
   * Whose limit it is. No key is an error: requests without one never share one. Pass them by `skip`, or give
   * them a key of their own.
   */
  readonly key: (context: Context) => Eventually<string | null | undefined>
  /** The limit for this request: a customer's plan. Default: the `Ratelimit`'s. */
  readonly limiter?: Limiter | ((context: Context) => Eventually<Limiter | undefined>)
  /** What the request costs; 0 passes without a query. Default: `1`. */
  readonly rate?: number | RateTable | ((context: Context) => Eventually<number>)
}

export const ROUTE_LIMIT_NAMES: NamesOf<RouteLimit<unknown>> = {
  ratelimit: true,
  key: true,
  limiter: true,
  rate: true,
}

interface OneLimit<Context> extends RouteLimit<Context> {
  readonly limits?: never
}

interface SeveralLimits<Context> {
  /** Several limits: all are charged, or none, by `Ratelimit.limitAll`. */
  readonly limits: readonly RouteLimit<Context>[]
  readonly ratelimit?: never
  readonly key?: never
  readonly limiter?: never
  readonly rate?: never
}

interface EachRequest<Context> {
  /** Requests that pass without a query. Default: none. */
  readonly skip?: (context: Context) => Eventually<boolean>
  /**
   * Which requests count. All are charged first, so that requests at the same time cannot pass together. What
   * does not count is given back to the window that paid when the response is known. The answers then have no
   * `crossed`. In a calendar window what counts is settled by one more statement. Default: `'all'`.
   */
  readonly count?: 'all' | 'failures' | 'successes'
  /**
   * How headers are spelled, or several ways, which are all sent; `false` sends none but `Retry-After`.
   * Default: `'draft-8'`.
   */
  readonly headers?: HeaderStandards | false
  /**
   * Is told each error of the database, also of settling, and what `failed` throws; returns what becomes of
   * the request, if that is still open. Whatever is none of the three throws the error. It is not asked about
   * mistakes in the options. Default: `'throw'`, the framework's own error handling.
   */
  readonly onError?: (error: unknown, context: Context) => Eventually<'throw' | 'allow' | 'deny'>
}

/** What every adapter can be told. */
export type GuardOptions<Context> = EachRequest<Context> & (OneLimit<Context> | SeveralLimits<Context>)

/** Of adapters that send no headers. */
export const HEADLESS_NAMES: NamesOf<GuardOptions<unknown> & { readonly headers?: never }> = {
  ...ROUTE_LIMIT_NAMES,
  limits: true,
  skip: true,
  count: true,
  onError: true,
}

export const GUARD_NAMES: NamesOf<GuardOptions<unknown>> = { ...HEADLESS_NAMES, headers: true }

/** All answers to a request, in the order of its limits; those that the request costs nothing are left out. */
interface Answers {
  readonly results: readonly LimitResult[]
}

/** The answer to a request: of several limits the tightest, with all of them in `results`. */
export type RequestAnswer = LimitResult & Answers

/** The answer to a denied request. */
export type RequestDenied = Denied & Answers
