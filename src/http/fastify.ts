import type { Denied } from '../check/results.ts'
import { RatelimitError } from '../errors.ts'
import { Ratelimit } from '../ratelimit.ts'
import { ratelimitOf, type StoreConfig, storable } from './store.ts'
import { deniedIfContended } from './unavailable.ts'

export type { StoreConfig }

/** What @fastify/rate-limit tells a store of a route. */
export interface RouteOptions {
  /** The route; empty for a handler of `app.rateLimit` or `app.createRateLimit`. */
  readonly routeInfo?: {
    readonly method?: string | readonly string[]
    readonly url?: string
    readonly constraints?: object
  }
  /** The name of such a handler. */
  readonly groupId?: string
  /** Refused, because denied requests are not counted. */
  readonly ban?: number
  /** Refused for the same reason. */
  readonly continueExceeding?: boolean
  /** Refused for the same reason. */
  readonly exponentialBackoff?: boolean
}

/** How often a key was used in its window, which ends in `ttl` milliseconds. */
export type Callback = (error: Error | null, result?: { current: number; ttl: number }) => void

/** A store as @fastify/rate-limit uses it. */
export interface RateLimitStore {
  /** Counts a request and tells how many there were. */
  incr(key: string, callback: Callback, timeWindow: number, max: number): void
  /** Tells how many requests there were. */
  read(key: string, callback: Callback, timeWindow: number, max: number): void
  /** The store of a route with limits of its own. */
  child(route: object): RateLimitStore
}

/**
 * A store for @fastify/rate-limit: `max` in each fixed window of `timeWindow`, for each route that has its own
 * `config.rateLimit`, and for all others together. `app.rateLimit` and `app.createRateLimit` with options of
 * their own need `groupId`, a name for what they count. A key that no row can have is stored as its SHA-256.
 *
 * A denied request writes nothing. So requests beyond `max` are not counted, and `ban`, `continueExceeding` and
 * `exponentialBackoff`, which need that, are refused.
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

  return class Store implements RateLimitStore {
    readonly #scope: string

    constructor(options: RouteOptions, scope = ' ') {
      checkRouteOptions(options)
      this.#scope = scope
    }

    #stored(key: string): Promise<string> {
      return storable(this.#scope + key, config.prefix)
    }

    incr(key: string, callback: Callback, timeWindow: number, max: number): void {
      const incremented = async () => {
        const limiter = Ratelimit.fixedWindow(max, timeWindow)
        const limiting = ratelimit.limit(await this.#stored(key), { limiter })
        const answer = await deniedIfContended(limiting, limiter)
        if (!answer.success) return deniedBy(answer, timeWindow, max)
        return {
          current: answer.degraded ? 1 : max - answer.remaining,
          ttl: Math.max(answer.reset - now(), 0),
        }
      }
      answer(incremented(), callback)
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
      answer(looked(), callback)
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

/** The time to wait comes from the database; a window of max 0 would never end. */
function deniedBy({ retryAfter }: Denied, timeWindow: number, max: number): Counted {
  return { current: max + 1, ttl: Math.min(retryAfter, timeWindow) }
}

function answer(result: Promise<Counted>, callback: Callback): void {
  result.then((found) => callback(null, found), callback)
}

/**
 * What stands before the keys of a child. No key of a client names another scope: there are no spaces in a
 * scope but those that are written here, methods are upper case, and the keys of the store itself begin with a
 * space.
 */
function scopeOf({ routeInfo = {}, groupId = '' }: RouteOptions): string {
  const { method, url, constraints = {} } = routeInfo
  if (url !== undefined) {
    // One path may have several routes, by host or version.
    const only = Object.entries(constraints).map((pair) => `|${encodeURIComponent(pair.join('='))}`)
    return `${method} ${encodeURI(url)}${only.join('')} `
  }
  if (groupId !== '') return `group ${encodeURIComponent(groupId)} `
  const what =
    'app.rateLimit() and app.createRateLimit() need a groupId of their own, which names what they count.'
  throw new RatelimitError('INVALID_OPTION', what)
}

function checkRouteOptions({ ban = -1, continueExceeding, exponentialBackoff }: RouteOptions): void {
  if (ban <= 0 && !continueExceeding && !exponentialBackoff) return
  const what = 'ban, continueExceeding and exponentialBackoff need denied requests to be counted.'
  throw new RatelimitError('INVALID_OPTION', what)
}
