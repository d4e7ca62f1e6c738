import { type BareItem, type Item, serializeList } from 'structured-headers'
import type { LimitResult } from '../check/results.ts'
import type { Policy } from './policy.ts'

/**
 * How the headers are spelled: by revision 8 or 6 of the IETF's draft "RateLimit header fields for HTTP", or as
 * `X-RateLimit-*`.
 */
export type HeaderStandard = 'draft-8' | 'draft-6' | 'legacy'

/** How to write the headers. */
export interface HeaderOptions {
  /** Default: `'draft-8'`. */
  readonly standard?: HeaderStandard
  /** The time from which the seconds to a `reset` are counted. Default: this machine's clock. */
  readonly clock?: () => Date
}

/** Names and values of headers. */
export type RateLimitHeaders = Readonly<Record<string, string>>

/** An answer, and the limit that gave it. */
export type Check = readonly [LimitResult, Policy]

/**
 * The headers that tell a client about its limit, for any response.
 *
 * - `'draft-8'`: `RateLimit-Policy` and `RateLimit` as structured fields; a prefix beyond ASCII is
 *   percent-encoded.
 * - `'draft-6'`: `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` in seconds, `RateLimit-Policy`.
 * - `'legacy'`: `X-RateLimit-Limit`, `X-RateLimit-Remaining`, and `X-RateLimit-Reset` in Unix seconds.
 *
 * A denial also has `Retry-After` in whole seconds, rounded up; it is left out if the call would never be
 * allowed. What is not known is left out: the rest of a limit whose database was away, and any limit of
 * `unlimited`.
 *
 * @param policy The limit: the `Ratelimit` itself, or `{ prefix, limiter }` for a call that named a limiter.
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
  policy: Policy,
  options: HeaderOptions = {},
): RateLimitHeaders {
  return headersOfAll([[answer, policy]], answer, options)
}

/** The headers of several limits. Only draft-8 can list them all; the others show the tightest. */
export function headersOfAll(
  checks: readonly Check[],
  tightest: LimitResult,
  { standard = 'draft-8', clock = () => new Date() }: HeaderOptions,
): RateLimitHeaders {
  const limited = checks.filter(([{ limit }]) => limit !== Number.POSITIVE_INFINITY)
  const shown = limited.filter(([answer]) => answer === tightest)
  const now = clock().getTime()
  return {
    ...(standard === 'draft-8' ? draft8(limited, now) : {}),
    ...(standard === 'draft-6' ? Object.assign({}, ...shown.map((check) => draft6(check, now))) : {}),
    ...(standard === 'legacy' ? Object.assign({}, ...shown.map(legacy)) : {}),
    ...retryAfter(tightest),
  }
}

/** `Retry-After` of a denial that ends. */
export function retryAfter(answer: LimitResult): RateLimitHeaders {
  if (answer.success || !Number.isFinite(answer.retryAfter)) return {}
  return { 'Retry-After': String(seconds(answer.retryAfter)) }
}

/** https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-08.html */
function draft8(checks: readonly Check[], now: number): RateLimitHeaders {
  const policies = checks.map(([answer, policy]): Item => {
    const { windowMs } = policy.limiter
    const w = windowMs === undefined ? undefined : seconds(windowMs)
    return [nameOf(policy), parameters({ q: whole(answer.limit), w })]
  })
  const known = checks.filter(([answer]) => !answer.degraded)
  const limits = known.map(([answer, policy]): Item => {
    const t = Number.isFinite(answer.reset) ? untilReset(answer, now) : undefined
    return [nameOf(policy), parameters({ r: whole(answer.remaining), t })]
  })
  return {
    ...(policies.length > 0 ? { 'RateLimit-Policy': serializeList(policies) } : {}),
    ...(limits.length > 0 ? { RateLimit: serializeList(limits) } : {}),
  }
}

/** https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-06.html */
function draft6([answer, { limiter }]: Check, now: number): RateLimitHeaders {
  const { windowMs } = limiter
  const limit = whole(answer.limit)
  const w = windowMs === undefined ? undefined : seconds(windowMs)
  return {
    'RateLimit-Policy': serializeList([[limit, parameters({ w })]]),
    'RateLimit-Limit': String(limit),
    ...(answer.degraded ? {} : { 'RateLimit-Remaining': String(whole(answer.remaining)) }),
    ...(answer.degraded || !Number.isFinite(answer.reset)
      ? {}
      : { 'RateLimit-Reset': String(untilReset(answer, now)) }),
  }
}

function legacy([answer]: Check): RateLimitHeaders {
  return {
    'X-RateLimit-Limit': String(whole(answer.limit)),
    ...(answer.degraded ? {} : { 'X-RateLimit-Remaining': String(whole(answer.remaining)) }),
    ...(answer.degraded || !Number.isFinite(answer.reset)
      ? {}
      : { 'X-RateLimit-Reset': String(seconds(answer.reset)) }),
  }
}

/** Of a denial the time that `Retry-After` says, which the database's clock has measured. */
function untilReset(answer: LimitResult, now: number): number {
  return seconds(answer.success ? Math.max(answer.reset - now, 0) : answer.retryAfter)
}

/** Never early. */
function seconds(ms: number): number {
  return whole(Math.ceil(ms / 1000))
}

/** The largest integer of structured fields has fifteen digits. */
const MAX_INTEGER = 999_999_999_999_999

function whole(amount: number): number {
  return Math.min(Math.floor(amount), MAX_INTEGER)
}

function parameters(values: Readonly<Record<string, number | undefined>>): Map<string, BareItem> {
  const known = Object.entries(values).filter((entry): entry is [string, number] => entry[1] !== undefined)
  return new Map(known)
}

function nameOf({ prefix }: Policy): string {
  return /^[\x20-\x7E]*$/.test(prefix) ? prefix : encodeURIComponent(prefix)
}
