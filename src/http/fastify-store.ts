import type { Denied } from '../kernel/answers/results.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { Ratelimit } from '../ratelimit.ts'
import { ratelimitOf, type StoreConfig, storable } from './store.ts'
import { deniedIfContended } from './unavailable.ts'

/** The options that @fastify/rate-limit gives to the store of a route. */
export interface RouteOptions {
  /** The route; empty for a handler of `app.rateLimit` or `app.createRateLimit`. */
  readonly routeInfo?: {
    readonly method?: string | readonly string[]
    readonly url?: string
    readonly constraints?: object
  }
  /** Routes and handlers with the same name share a count. */
  readonly groupId?: string
  /** All that share a count need the same. */
  readonly timeWindow?: unknown
  /** Refused, because denied requests are not counted. */
  readonly ban?: number
  /** Refused for the same reason. */
  readonly continueExceeding?: boolean
  /** Refused for the same reason. */
  readonly exponentialBackoff?: boolean
}

/** Gets how often a key was used in its window, which ends in `ttl` milliseconds. */
export type Callback = (error: Error | null, result?: { current: number; ttl: number }) => void

/** A store as @fastify/rate-limit uses it. */
export interface RateLimitStore {
  /** Counts a request and returns the number of requests. */
  incr(key: string, callback: Callback, timeWindow: number, max: number): void
  /** Returns the number of requests. */
  read(key: string, callback: Callback, timeWindow: number, max: number): void
  /** The store of a route with limits of its own. */
  child(route: object): RateLimitStore
}

/**
 * A store for @fastify/rate-limit: `max` requests in each fixed window of `timeWindow`, for each route with its
 * own `config.rateLimit`, and for all others together. Routes and handlers with the same `groupId` share a
 * count. `app.rateLimit` and `app.createRateLimit` with options of their own need one. What shares a count
 * needs the same `timeWindow`. A key that is not valid for a row is stored as its SHA-256.
 *
 * A denied request writes nothing, so requests beyond `max` are not counted. `ban`, `continueExceeding` and
 * `exponentialBackoff` need their counts and are refused.
 *
 * @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION`
 *
 * @example
 * ```ts
 * import rateLimit from '@fastify/rate-limit'
 * import { rateLimitStore } from 'drizzle-ratelimit/fastify'
 * import fastify from 'fastify'
 * import { db } from './app.ts'
 *
 * const app = fastify()
 * const store = rateLimitStore({ db, prefix: 'web' })
 * await app.register(rateLimit, { max: 100, timeWindow: '1 minute', store })
 * ```
 */
export function rateLimitStore(config: StoreConfig): new (options: object) => RateLimitStore {
  const ratelimit = ratelimitOf(config, Ratelimit.fixedWindow(1000, '1m'))
  const now = () => (config.clock?.() ?? new Date()).getTime()
  const checkWindow = windowsOfScopes()

  return class Store implements RateLimitStore {
    readonly #scope: string
    /** What the plugin adds to each key: the `groupId` of a route, and no handler's. */
    readonly #suffix: string

    constructor(options: RouteOptions, scope = ' ') {
      checkRouteOptions(options)
      checkWindow(scope, options)
      this.#scope = scope
      this.#suffix = options.routeInfo?.url === undefined ? '' : (options.groupId ?? '')
    }

    #stored(key: string): Promise<string> {
      const own = key.endsWith(this.#suffix) ? key.slice(0, key.length - this.#suffix.length) : key
      return storable(this.#scope + own, config.prefix)
    }

    incr(key: string, callback: Callback, timeWindow: number, max: number): void {
      const incremented = async () => {
        const limiter = Ratelimit.fixedWindow(max, timeWindow)
        const limiting = ratelimit.limit(await this.#stored(key), { limiter })
        const answer = await deniedIfContended(limiting, limiter)
        if (!answer.success) return deniedBy(answer, timeWindow, max)
        return {
          // A limit of Infinity is counted, but the answer does not say how much.
          current: answer.degraded || max === Number.POSITIVE_INFINITY ? 1 : max - answer.remaining,
          ttl: Math.max(answer.reset - now(), 0),
        }
      }
      answerCallback(incremented(), callback)
    }

    read(key: string, callback: Callback, timeWindow: number, max: number): void {
      const looked = async () => {
        const limiter = Ratelimit.fixedWindow(max, timeWindow)
        const looking = ratelimit.getRemaining(await this.#stored(key), { limiter })
        const look = await deniedIfContended(looking, limiter)
        if ('success' in look) return deniedBy(look, timeWindow, max)
        const { used, reset } = look
        return { current: used, ttl: used > 0 ? Math.max(reset - now(), 0) : 0 }
      }
      answerCallback(looked(), callback)
    }

    child(options: RouteOptions): RateLimitStore {
      return new Store(options, scopeOf(options))
    }
  }
}

interface Counted {
  current: number
  ttl: number
}

/** The counts of a denied request. The database gives the time to wait, and a `max` of 0 would never end it. */
function deniedBy({ retryAfter }: Denied, timeWindow: number, max: number): Counted {
  return { current: max + 1, ttl: Math.min(retryAfter, timeWindow) }
}

function answerCallback(result: Promise<Counted>, callback: Callback): void {
  result.then((found) => callback(null, found), callback)
}

/**
 * The prefix of the keys of a child store. A client's key cannot name another scope: the only spaces in a scope
 * are those written here, methods are upper case, and the keys of the store itself begin with a space.
 */
function scopeOf({ routeInfo = {}, groupId = '' }: RouteOptions): string {
  if (groupId !== '') return `group ${encodeURIComponent(groupId)} `
  const { method, url, constraints = {} } = routeInfo
  checkOption(
    url !== undefined,
    'app.rateLimit() and app.createRateLimit() each need a groupId, which names their counter.',
  )
  // One path may have several routes, by host or version.
  const only = Object.entries(constraints).map((pair) => `|${encodeURIComponent(pair.join('='))}`)
  return `${method} ${encodeURI(url)}${only.join('')} `
}

/** Refuses a second window for one count, because the shorter window would end the count of the longer. */
function windowsOfScopes(): (scope: string, options: RouteOptions) => void {
  const windows = new Map<string, unknown>()
  return (scope, { timeWindow }) => {
    const isOther = windows.has(scope) && windows.get(scope) !== timeWindow
    checkOption(!isOther, 'All that share a groupId, or a store, need the same timeWindow.')
    windows.set(scope, timeWindow)
  }
}

function checkRouteOptions({ ban = -1, continueExceeding, exponentialBackoff }: RouteOptions): void {
  checkOption(
    ban <= 0 && !continueExceeding && !exponentialBackoff,
    'ban, continueExceeding and exponentialBackoff need counts of denied requests.',
  )
}
