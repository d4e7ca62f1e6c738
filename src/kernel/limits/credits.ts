import { checkOptions, type NamesOf } from '../base/check-options.ts'
import { type Duration, parseDuration } from '../duration.ts'

/** Credits in grants of their own, as `Ratelimit.credits` makes them. */
export interface Credits {
  /** Distinguishes them from limits on the rate of calls. */
  readonly kind: 'credits'
  /** Milliseconds for which the row of a grant is kept after its end. */
  readonly keepMs: number
  /** Equal for all limits of this kind: they share rows. */
  readonly rows: string
}

/** Options of `Ratelimit.credits`. */
export interface CreditsOptions {
  /**
   * How long a grant's row is kept after its end. While the row exists, the grant's id cannot be used again,
   * and `grantsOf` lists what has expired. Default: `'90d'`.
   */
  readonly keep?: Duration
}

const CREDITS_NAMES: NamesOf<CreditsOptions> = { keep: true }

const KEEP_MS = 90 * 86_400_000

/**
 * Prepaid credits, in whole units, in grants that can end. Each `grant` is a row with its own end and priority.
 * Calls take from the grant with the lowest priority number first, then from the one that ends first, then from
 * the oldest.
 *
 * Credits without ends and priorities are cheaper as a `balance`, which is one row for each key.
 *
 * In answers, `limit` is the sum of the grants that have not ended, and `remaining` their unused part, less
 * what is owed. Nothing refills, so `reset` is `Infinity` once something is used, and so is `retryAfter` of a
 * denial.
 *
 * @throws RatelimitError `INVALID_DURATION`, `INVALID_OPTION`
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { db } from './app.ts'
 *
 * const credits = new Ratelimit({ db, limiter: Ratelimit.credits(), prefix: 'credits', durable: true })
 * await credits.grant('org:1', 500, { id: 'promo:7', expires: '30d', priority: 10 })
 * await credits.limit('org:1', { rate: 40 })
 * ```
 */
export function credits(options: CreditsOptions = {}): Credits {
  checkOptions(options, CREDITS_NAMES)
  const { keep = KEEP_MS } = options
  return { kind: 'credits', keepMs: parseDuration(keep, 'keep'), rows: 'credits' }
}
