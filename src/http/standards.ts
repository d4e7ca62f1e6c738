import { type Item, serializeList } from 'structured-headers'
import { checkOption } from '../validate.ts'

/**
 * How the headers are spelled: by revision 8 or 6 of the IETF's draft "RateLimit header fields for HTTP", or as
 * `X-RateLimit-*`.
 */
export type HeaderStandard = 'draft-8' | 'draft-6' | 'legacy'

/** One way to spell the headers, or several. Both drafts have a `RateLimit-Policy`, so only one can be sent. */
export type HeaderStandards =
  | HeaderStandard
  | readonly ('draft-8' | 'legacy')[]
  | readonly ('draft-6' | 'legacy')[]

/** Names and values of headers. */
export type RateLimitHeaders = Readonly<Record<string, string>>

/** What the headers tell of a limit, in the integers of structured fields. */
export interface Tellable {
  readonly name: string
  readonly limit: number
  readonly remaining: number | undefined
  readonly windowSeconds: number | undefined
  /** Seconds from now, and since 1970. */
  readonly untilReset: number | undefined
  readonly resetsAt: number | undefined
}

/** The headers of one or more limits. */
export const WRITTEN: Record<HeaderStandard, (told: readonly Tellable[]) => RateLimitHeaders> = {
  /** https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-08.html */
  'draft-8': (told) => {
    const known = told.filter(({ remaining }) => remaining !== undefined)
    return present({
      'RateLimit-Policy': listOf(told, ({ name, limit, windowSeconds }) => [
        name,
        { q: limit, w: windowSeconds },
      ]),
      RateLimit: listOf(known, ({ name, remaining, untilReset }) => [name, { r: remaining, t: untilReset }]),
    })
  },
  /** https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-06.html */
  'draft-6': (told) =>
    present({
      'RateLimit-Policy': listOf(told, ({ limit, windowSeconds }) => [limit, { w: windowSeconds }]),
      'RateLimit-Limit': told[0]?.limit,
      'RateLimit-Remaining': told[0]?.remaining,
      'RateLimit-Reset': told[0]?.untilReset,
    }),
  legacy: ([told]) =>
    present({
      'X-RateLimit-Limit': told?.limit,
      'X-RateLimit-Remaining': told?.remaining,
      'X-RateLimit-Reset': told?.resetsAt,
    }),
}

/**
 * Each way to spell the headers.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function readStandards(standards: HeaderStandards): readonly HeaderStandard[] {
  const list: readonly HeaderStandard[] = typeof standards === 'string' ? [standards] : standards
  checkOption(
    Array.isArray(list) && list.length > 0 && list.every((each) => Object.hasOwn(WRITTEN, each)),
    "Headers are 'draft-8', 'draft-6' or 'legacy', or a list of these.",
  )
  checkOption(
    !(list.includes('draft-8') && list.includes('draft-6')),
    'draft-8 and draft-6 spell RateLimit-Policy in two ways. Send one of them.',
  )
  return list
}

/** A list of structured fields; undefined if it is empty, and without the parameters that are undefined. */
function listOf(
  told: readonly Tellable[],
  item: (told: Tellable) => [string | number, Readonly<Record<string, number | undefined>>],
): string | undefined {
  const items = told.map(item).map(([value, parameters]): Item => {
    const known = Object.entries(parameters).flatMap(([name, number]) =>
      number === undefined ? [] : [[name, number] as const],
    )
    return [value, new Map(known)]
  })
  return items.length > 0 ? serializeList(items) : undefined
}

/** Without the headers that are undefined. */
export function present(headers: Readonly<Record<string, string | number | undefined>>): RateLimitHeaders {
  const known = Object.entries(headers).filter(([, value]) => value !== undefined)
  return Object.fromEntries(known.map(([name, value]) => [name, String(value)]))
}
