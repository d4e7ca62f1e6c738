import { checkOptions, type NamesOf } from '../base/check-options.ts'
import { type Duration, parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import { ROWS } from './rows.ts'

/** A limit on how many leases a key has at once, as `Ratelimit.concurrency` makes it. */
export interface Concurrency {
  /** Distinguishes it from limits on the rate of calls. */
  readonly kind: 'concurrency'
  /** The most leases at once. */
  readonly limit: number
  /** Milliseconds after which a lease ends by itself. */
  readonly leaseMs: number
  /** Equal for all limits of this kind: they share rows. */
  readonly rows: string
}

/** The number of a slot has four digits in the key of its row. */
export const MAX_SLOTS = 1_000

/** A shorter lease could end before the answer arrives. */
const MIN_LEASE_MS = 100

/**
 * A day. Longer work has to extend its lease, because after a crash its slot is in use until the lease ends.
 */
const MAX_LEASE_MS = 86_400_000

/** Options of `Ratelimit.concurrency`. */
export interface ConcurrencyOptions {
  /** How long a lease lasts without `extend`: from 100 ms to a day. */
  readonly lease: Duration
}

const CONCURRENCY_NAMES: NamesOf<ConcurrencyOptions> = { lease: true }

/**
 * At most `limit` leases of a key at once. `acquire` takes one. It ends by `release`, or by itself when `lease`
 * is over, so that no slot is lost when a process crashes.
 *
 * @param limit From 0 to 1,000; 0 denies.
 * @throws RatelimitError `INVALID_LIMIT`, `INVALID_DURATION`, `INVALID_OPTION`
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { db } from './app.ts'
 *
 * const limiter = Ratelimit.concurrency(5, { lease: '30s' })
 * const exports = new Ratelimit({ db, limiter, prefix: 'exports', durable: true })
 * const job = await exports.acquire('org:1', { timeout: '10s' })
 * ```
 */
export function concurrency(limit: number, options: ConcurrencyOptions): Concurrency {
  checkOptions(options, CONCURRENCY_NAMES)
  if (!Number.isSafeInteger(limit) || limit < 0 || limit > MAX_SLOTS) {
    throw new RatelimitError('INVALID_LIMIT', 'The limit must be a whole number of leases from 0 to 1000.')
  }
  const leaseMs = parseDuration(options.lease, 'The lease', MIN_LEASE_MS)
  if (leaseMs > MAX_LEASE_MS) {
    throw new RatelimitError(
      'INVALID_DURATION',
      'The lease must be at most a day: extend it for longer work.',
    )
  }
  return { kind: 'concurrency', limit, leaseMs, rows: ROWS.concurrency.columns.join() }
}
