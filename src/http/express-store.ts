import { AsyncLocalStorage } from 'node:async_hooks'
import type { StoredLimiter } from '../algorithms/algorithm.ts'
import type { Ratelimit } from '../ratelimit.ts'
import { counting, ratelimitOf, type StoreConfig, storable, warnOfFailure } from './store.ts'
import { deniedIfContended } from './unavailable.ts'

/** The hits of a key in its window, for express-rate-limit. */
export interface Hits {
  /** The number of hits, including denied ones. */
  readonly totalHits: number
  /** When the window ends. */
  readonly resetTime: Date
}

/** The hit of the current request. */
interface OwnHit {
  readonly key: string
  giveBack?: (() => Promise<unknown>) | undefined
}

/**
 * A store for express-rate-limit: each key's hits in a fixed window, which begins with the first hit.
 *
 * express-rate-limit decides by the count, so every hit is written, also denied ones. A hit is given back to
 * the window that counted it, and never to a later one. A key that is not valid for a row is stored as its
 * SHA-256.
 *
 * During an outage, requests pass as a first hit with `onError: 'allow'`, and are denied with `'deny'`.
 *
 * @example
 * ```ts
 * import { RateLimitStore } from 'drizzle-ratelimit/express'
 * import { rateLimit } from 'express-rate-limit'
 * import { db } from './app.ts'
 *
 * rateLimit({ windowMs: 60_000, limit: 100, store: new RateLimitStore({ db, prefix: 'web' }) })
 * ```
 */
export class RateLimitStore {
  /** The keys are in the database, which other instances share. */
  readonly localKeys = false
  /** The limiter's namespace. */
  readonly prefix: string
  readonly #ratelimit: Ratelimit
  readonly #hits = new AsyncLocalStorage<OwnHit>()
  /** Until `init`, express-rate-limit's default window. */
  #limiter: StoredLimiter = counting(60_000)

  constructor(config: StoreConfig) {
    this.#ratelimit = ratelimitOf(config, this.#limiter)
    this.prefix = this.#ratelimit.prefix
  }

  /** Sets the length of the window. */
  init({ windowMs }: { readonly windowMs: number }): void {
    this.#limiter = counting(windowMs)
  }

  /** Counts a hit. */
  async increment(key: string): Promise<Hits> {
    const hit = this.#ownHit(key)
    const reserving = this.#ratelimit.reserve(await this.#stored(key), this.#options)
    const reserved = await deniedIfContended(reserving, this.#limiter)
    if (reserved.success) hit.giveBack ??= () => reserved.release()
    const { success, limit, remaining, reset, degraded } = reserved
    return { totalHits: degraded && success ? 1 : limit - remaining, resetTime: new Date(reset) }
  }

  /** Gives a hit back. If that fails, the hit stays counted, with a warning. It never rejects. */
  async decrement(key: string): Promise<void> {
    const hit = this.#ownHit(key)
    const { giveBack = () => this.#giveBackOne(key) } = hit
    hit.giveBack = undefined
    try {
      await giveBack()
    } catch (error) {
      // It runs after the response. Before version 8, express-rate-limit catches nothing there.
      warnOfFailure(error, this.prefix)
    }
  }

  async #giveBackOne(key: string): Promise<void> {
    await this.#ratelimit.limit(await this.#stored(key), { ...this.#options, rate: -1 })
  }

  /** Forgets the hits of a key. */
  async resetKey(key: string): Promise<void> {
    await this.#ratelimit.resetUsedTokens(await this.#stored(key), this.#options)
  }

  /** The hits of a key; undefined if there are none. */
  async get(key: string): Promise<Hits | undefined> {
    const { used, reset } = await this.#ratelimit.getRemaining(await this.#stored(key), this.#options)
    return used > 0 ? { totalHits: used, resetTime: new Date(reset) } : undefined
  }

  /**
   * The hit of this request. express-rate-limit gives a hit back by its key, which does not identify the
   * window. But it does so in the asynchronous context that counted the hit.
   */
  #ownHit(key: string): OwnHit {
    const own = this.#hits.getStore()
    if (own?.key === key) return own
    const hit: OwnHit = { key }
    this.#hits.enterWith(hit)
    return hit
  }

  #stored(key: string): Promise<string> {
    return storable(key, this.prefix)
  }

  get #options(): { readonly limiter: StoredLimiter } {
    return { limiter: this.#limiter }
  }
}
