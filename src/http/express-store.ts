import { AsyncLocalStorage } from 'node:async_hooks'
import type { Limiter } from '../kernel/limits/algorithm.ts'
import { checkOption } from '../kernel/options/validate.ts'
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
  #windowMs: number | undefined
  /** Throws if there is no valid window. */
  #limiter: () => Limiter

  constructor(config: StoreConfig) {
    // Until `init`, express-rate-limit's default window.
    const limiter = counting(60_000)
    this.#limiter = () => limiter
    this.#ratelimit = ratelimitOf(config, limiter)
    this.prefix = this.#ratelimit.prefix
  }

  /**
   * Sets the length of the window. express-rate-limit may only log the errors of this, so after an error each
   * request fails too.
   *
   * @throws RatelimitError `INVALID_DURATION`; `INVALID_OPTION` for a second window
   */
  init({ windowMs }: { readonly windowMs: number }): void {
    try {
      this.#windowMs ??= windowMs
      const message = 'Limits with other windows need a store and a prefix of their own.'
      checkOption(this.#windowMs === windowMs, message)
      const limiter = counting(windowMs)
      this.#limiter = () => limiter
    } catch (error) {
      this.#limiter = () => {
        throw error
      }
      throw error
    }
  }

  /** Counts a hit. */
  async increment(key: string): Promise<Hits> {
    const hit = this.#ownHit(key)
    const limiter = this.#limiter()
    const reserving = this.#ratelimit.reserve(await this.#stored(key), { limiter })
    const reserved = await deniedIfContended(reserving, limiter)
    // Of a hit that was not counted, nothing may be given back: it would be one of another request.
    hit.giveBack ??= reserved.success ? () => reserved.release() : async () => {}
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

  get #options(): { readonly limiter: Limiter } {
    return { limiter: this.#limiter() }
  }
}
