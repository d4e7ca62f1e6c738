import { type Item, serializeList } from 'structured-headers'
import { checkOption } from '../kernel/options/validate.ts'

/**
 * The standard of the headers: revision 8 or 6 of the IETF's draft "RateLimit header fields for HTTP", or
 * `X-RateLimit-*`.
 */
export type HeaderStandard = 'draft-8' | 'draft-6' | 'legacy'

/** One standard, or several. Both drafts have a header `RateLimit-Policy`, so only one of them can be sent. */
export type HeaderStandards =
  | HeaderStandard
  | readonly ('draft-8' | 'legacy')[]
  | readonly ('draft-6' | 'legacy')[]

/** The names and values of headers. */
export type RateLimitHeaders = Readonly<Record<string, string>>

/** The numbers of a limit for the headers, as integers of structured fields. */
export interface HeaderNumbers {
  readonly name: string
  readonly limit: number
  readonly remaining: number | undefined
  readonly windowSeconds: number | undefined
  /** Seconds from now. */
  readonly untilReset: number | undefined
  /** Seconds since 1970. */
  readonly resetsAt: number | undefined
}

type HeaderWriter = (limits: readonly HeaderNumbers[]) => RateLimitHeaders

/** The headers of one or more limits. */
export const HEADER_WRITERS: Record<HeaderStandard, HeaderWriter> = {
  /** https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-08.html */
  'draft-8': (limits) => {
    const known = limits.filter(({ remaining }) => remaining !== undefined)
    return present({
      'RateLimit-Policy': structuredList(limits, 'name', ({ limit: q, windowSeconds: w }) => ({ q, w })),
      RateLimit: structuredList(known, 'name', ({ remaining: r, untilReset: t }) => ({ r, t })),
    })
  },
  /** https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-06.html */
  'draft-6': (limits) =>
    present({
      'RateLimit-Policy': structuredList(limits, 'limit', ({ windowSeconds: w }) => ({ w })),
      'RateLimit-Limit': limits[0]?.limit,
      'RateLimit-Remaining': limits[0]?.remaining,
      'RateLimit-Reset': limits[0]?.untilReset,
    }),
  legacy: ([first]) =>
    present({
      'X-RateLimit-Limit': first?.limit,
      'X-RateLimit-Remaining': first?.remaining,
      'X-RateLimit-Reset': first?.resetsAt,
    }),
}

/**
 * The list of standards to send.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function readStandards(standards: HeaderStandards): readonly HeaderStandard[] {
  const list: readonly HeaderStandard[] = typeof standards === 'string' ? [standards] : standards
  checkOption(
    Array.isArray(list) && list.length > 0 && list.every((each) => Object.hasOwn(HEADER_WRITERS, each)),
    "Headers are 'draft-8', 'draft-6' or 'legacy', or a list of these.",
  )
  checkOption(
    !(list.includes('draft-8') && list.includes('draft-6')),
    'draft-8 and draft-6 have different RateLimit-Policy headers. Send one of them.',
  )
  return list
}

/** A list of structured fields without undefined parameters. Undefined if the list is empty. */
function structuredList(
  limits: readonly HeaderNumbers[],
  value: 'name' | 'limit',
  parametersOf: (limit: HeaderNumbers) => Readonly<Record<string, number | undefined>>,
): string | undefined {
  const items = limits.map((limit): Item => {
    const known = Object.entries(parametersOf(limit)).flatMap(([name, number]) =>
      number === undefined ? [] : [[name, number] as const],
    )
    return [limit[value], new Map(known)]
  })
  return items.length > 0 ? serializeList(items) : undefined
}

/** Drops undefined headers. */
export function present(headers: Readonly<Record<string, string | number | undefined>>): RateLimitHeaders {
  const known = Object.entries(headers).filter(([, value]) => value !== undefined)
  return Object.fromEntries(known.map(([name, value]) => [name, String(value)]))
}
