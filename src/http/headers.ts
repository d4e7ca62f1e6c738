import type { AnyCredits } from '../any-credits.ts'
import type { LimitResult } from '../kernel/answers/results.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import type { Policy } from './policy.ts'
import {
  HEADER_WRITERS,
  type HeaderNumbers,
  type HeaderStandards,
  present,
  type RateLimitHeaders,
  readStandards,
} from './standards.ts'

/** Options of `headersOf`. */
export interface HeaderOptions {
  /** The standard, or several to send all of them. Default: `'draft-8'`. */
  readonly standard?: HeaderStandards
  /** The time from which the seconds to a `reset` are counted. Default: the clock of this process. */
  readonly clock?: () => Date
}

const HEADER_NAMES: NamesOf<HeaderOptions> = { standard: true, clock: true }

/** An answer and its limit. */
export type Check = readonly [LimitResult, Policy | AnyCredits]

/**
 * The headers that show a client its limit, for any response.
 *
 * - `'draft-8'`: `RateLimit-Policy` and `RateLimit` as structured fields; a prefix beyond ASCII is
 *   percent-encoded.
 * - `'draft-6'`: `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` in seconds, `RateLimit-Policy`.
 * - `'legacy'`: `X-RateLimit-Limit`, `X-RateLimit-Remaining`, and `X-RateLimit-Reset` in Unix seconds.
 *
 * A denial also has `Retry-After` in whole seconds, rounded up, unless the call would never be allowed. Unknown
 * numbers are left out: the remaining units and the reset during an outage, and everything for `unlimited`.
 *
 * @param policy The limit: the `Ratelimit` or `Credits` itself, or `{ prefix, limiter }` for a call with a
 * `limiter`.
 * @throws RatelimitError `INVALID_OPTION`
 *
 * @example
 * ```ts
 * import { headersOf } from 'drizzle-ratelimit/http'
 * import { api } from './app.ts'
 *
 * const answer = await api.limit('user:123')
 * new Response('hello', { headers: headersOf(answer, api) })
 * ```
 */
export function headersOf(
  answer: LimitResult,
  policy: Policy | AnyCredits,
  options: HeaderOptions = {},
): RateLimitHeaders {
  checkOptions(options, HEADER_NAMES)
  return headersOfAll([[answer, policy]], answer, options)
}

/** The headers of several limits. Only draft-8 can list them all; the others show the tightest. */
export function headersOfAll(
  checks: readonly Check[],
  tightest: LimitResult,
  { standard = 'draft-8', clock = () => new Date() }: HeaderOptions,
): RateLimitHeaders {
  const now = clock().getTime()
  const limited = checks.filter(([{ limit }]) => limit !== Number.POSITIVE_INFINITY)
  const written = readStandards(standard).map((each) => {
    const shown = limited.filter(([answer]) => each === 'draft-8' || answer === tightest)
    return shown.length > 0 ? HEADER_WRITERS[each](shown.map((check) => numbersOf(check, now))) : {}
  })
  return Object.fromEntries([...written, retryAfter(tightest)].flatMap(Object.entries<string>))
}

/** `Retry-After` of a denial that ends. */
export function retryAfter(answer: Pick<LimitResult, 'success' | 'retryAfter'>): RateLimitHeaders {
  return present({ 'Retry-After': answer.success ? undefined : seconds(answer.retryAfter) })
}

function numbersOf([answer, policy]: Check, now: number): HeaderNumbers {
  const { success, degraded, limit, remaining, reset, retryAfter } = answer
  const { prefix } = policy
  const windowMs = 'limiter' in policy ? policy.limiter.windowMs : undefined
  return {
    name: /^[\x20-\x7E]*$/.test(prefix) ? prefix : encodeURIComponent(prefix),
    limit: whole(limit),
    remaining: degraded ? undefined : whole(remaining),
    windowSeconds: windowMs && seconds(windowMs),
    // For a denial, the same time as in `Retry-After`, which comes from the database's clock.
    untilReset: degraded ? undefined : seconds(success ? Math.max(reset - now, 0) : retryAfter),
    resetsAt: degraded ? undefined : seconds(reset),
  }
}

/** Seconds, rounded up, so that clients do not come too early. Undefined if the time never comes. */
function seconds(ms: number): number | undefined {
  return Number.isFinite(ms) ? whole(Math.ceil(ms / 1000)) : undefined
}

/** The largest integer of structured fields has fifteen digits. */
const MAX_INTEGER = 999_999_999_999_999

function whole(amount: number): number {
  return Math.min(Math.floor(amount), MAX_INTEGER)
}
