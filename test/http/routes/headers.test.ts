import { headersOf, tooManyRequests } from 'drizzle-ratelimit/http'
import { parseList } from 'structured-headers'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Allowed, type Denied, type LimitAllResult, Ratelimit } from '../../../src/index.ts'

const NOW = Date.UTC(2026, 0, 31, 10)
const clock = () => new Date(NOW)
const api = { prefix: 'api', limiter: Ratelimit.fixedWindow(100, '1m') }
const allowed: Allowed = { success: true, limit: 100, remaining: 42, reset: NOW + 30_001, retryAfter: 0 }
const denied: Denied = { success: false, limit: 100, remaining: 0, reset: NOW + 9001, retryAfter: 9001 }
const never = { ...denied, reset: Number.POSITIVE_INFINITY, retryAfter: Number.POSITIVE_INFINITY }

describe('headersOf', () => {
  test('by default draft 8: two structured fields', () => {
    expect(headersOf(allowed, api, { clock })).toEqual({
      'RateLimit-Policy': '"api";q=100;w=60',
      RateLimit: '"api";r=42;t=31',
    })
  })

  test('draft 6', () => {
    expect(headersOf(denied, api, { clock, standard: 'draft-6' })).toEqual({
      'RateLimit-Policy': '100;w=60',
      'RateLimit-Limit': '100',
      'RateLimit-Remaining': '0',
      'RateLimit-Reset': '10',
      'Retry-After': '10',
    })
  })

  test('legacy', () => {
    expect(headersOf(allowed, api, { standard: 'legacy' })).toEqual({
      'X-RateLimit-Limit': '100',
      'X-RateLimit-Remaining': '42',
      'X-RateLimit-Reset': String(NOW / 1000 + 31),
    })
  })

  test('a list sends them all', () => {
    expect(headersOf(denied, api, { clock, standard: ['draft-8', 'legacy'] })).toEqual({
      'RateLimit-Policy': '"api";q=100;w=60',
      RateLimit: '"api";r=0;t=10',
      'X-RateLimit-Limit': '100',
      'X-RateLimit-Remaining': '0',
      'X-RateLimit-Reset': String(NOW / 1000 + 10),
      'Retry-After': '10',
    })
    expect(headersOf(allowed, api, { clock, standard: ['legacy', 'draft-6'] })).toEqual({
      ...headersOf(allowed, api, { clock, standard: 'legacy' }),
      ...headersOf(allowed, api, { clock, standard: 'draft-6' }),
    })
  })

  test.each([['draft-7'], ['constructor'], [[]], [['draft-8', 'draft-7']], [['draft-6', 'draft-8']], [null]])(
    'refuses %j',
    (standard) => {
      expect(() => headersOf(allowed, api, { standard } as never)).toThrow(
        expect.objectContaining({ code: 'INVALID_OPTION' }),
      )
    },
  )

  test.each([
    [1, '1'],
    [999, '1'],
    [1000, '1'],
    [1001, '2'],
    [31_536_000_000, '31536000'],
  ])('Retry-After is never early: %d ms', (retryAfter, seconds) => {
    const headers = headersOf({ ...denied, reset: NOW + retryAfter, retryAfter }, api, { clock })
    expect(headers).toMatchObject({ 'Retry-After': seconds, RateLimit: `"api";r=0;t=${seconds}` })
  })

  test('both headers of a denial have the same time, whatever the clock of this machine says', () => {
    const late = () => new Date(NOW + 3_600_000)
    expect(headersOf(denied, api, { clock: late })).toMatchObject({
      'Retry-After': '10',
      RateLimit: '"api";r=0;t=10',
    })
    expect(headersOf(allowed, api, { clock: late })).toMatchObject({ RateLimit: '"api";r=42;t=0' })
  })

  test.each(['draft-8', 'draft-6', 'legacy'] as const)(
    'a limit that never ends has no time: %s',
    (standard) => {
      const headers = headersOf(never, api, { standard })
      expect(headers).not.toHaveProperty('Retry-After')
      expect(JSON.stringify(headers)).not.toMatch(/Infinity|NaN|;t=|Reset/)
    },
  )

  test('unknown values are left out', () => {
    const degraded = { ...denied, degraded: true } as const
    expect(headersOf(degraded, api)).toEqual({ 'RateLimit-Policy': '"api";q=100;w=60', 'Retry-After': '10' })
    expect(headersOf(degraded, api, { standard: 'legacy' })).toEqual({
      'X-RateLimit-Limit': '100',
      'Retry-After': '10',
    })
    const infinite = { ...allowed, limit: Number.POSITIVE_INFINITY, remaining: Number.POSITIVE_INFINITY }
    for (const standard of ['draft-8', 'draft-6', 'legacy'] as const) {
      expect(headersOf(infinite, { prefix: 'api', limiter: Ratelimit.unlimited() }, { standard })).toEqual({})
    }
  })

  test('the window of each algorithm', () => {
    const windows = [
      Ratelimit.slidingWindow(10, '10s'),
      Ratelimit.tokenBucket(5, '10s', 20),
      Ratelimit.gcra(60, '1m', { burst: 10 }),
      calendarWindow(10, 'month'),
    ].map(
      (limiter) =>
        headersOf({ ...allowed, limit: limiter.limit }, { prefix: 'api', limiter })['RateLimit-Policy'],
    )
    expect(windows).toEqual(['"api";q=10;w=10', '"api";q=20;w=40', '"api";q=10;w=10', '"api";q=10'])
  })

  test('numbers and names that the fields cannot hold', () => {
    const huge = { ...allowed, limit: Number.MAX_SAFE_INTEGER, remaining: Number.MAX_SAFE_INTEGER }
    expect(headersOf(huge, api, { clock })).toMatchObject({ RateLimit: '"api";r=999999999999999;t=31' })
    expect(headersOf({ ...allowed, limit: 1.5 }, api)).toMatchObject({ 'RateLimit-Policy': '"api";q=1;w=60' })
    for (const prefix of ['Zürich "1"', 'a\r\nSet-Cookie: b=c', 'quote"back\\slash']) {
      const field = headersOf(allowed, { ...api, prefix })['RateLimit-Policy'] ?? ''
      expect(new Headers({ field }).get('field')).toBe(field)
      expect(decodeURIComponent(String(parseList(field)[0]?.[0]))).toBe(prefix)
    }
  })
})

describe('tooManyRequests', () => {
  test('a problem document with the headers of the limit', async () => {
    const response = tooManyRequests(denied, api, { clock })
    expect(response.status).toBe(429)
    expect(Object.fromEntries(response.headers)).toEqual({
      'content-type': 'application/problem+json',
      'ratelimit-policy': '"api";q=100;w=60',
      ratelimit: '"api";r=0;t=10',
      'retry-after': '10',
    })
    expect(await response.json()).toEqual({
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      title: 'Request cannot be satisfied as assigned quota has been exceeded',
      status: 429,
      limit: 100,
      remaining: 0,
      resetMs: NOW + 9001,
      retryAfterMs: 9001,
      'violated-policies': ['api'],
    })
  })

  test('without the limit, only Retry-After', async () => {
    const response = tooManyRequests(denied)
    expect(Object.fromEntries(response.headers)).toEqual({
      'content-type': 'application/problem+json',
      'retry-after': '10',
    })
    expect(await response.json()).not.toHaveProperty('violated-policies')
  })

  test('a number in the problem document is never null', async () => {
    const text = await tooManyRequests(never, api).text()
    expect(text).not.toContain('null')
    expect(JSON.parse(text)).not.toHaveProperty('retryAfterMs')
    const uncounted = { ...denied, limit: Number.POSITIVE_INFINITY, degraded: true as const }
    expect(await tooManyRequests(uncounted).text()).not.toContain('null')
  })

  const all: LimitAllResult<unknown> = { success: false, results: [denied], denied: [], retryAfter: 9001 }

  test.each([
    ['several limits', all],
    ['a slot', { success: false, retryAfter: 9001 }],
  ])('a denial of %s has no headers of a limit', async (_, answer) => {
    const response = tooManyRequests(answer)
    expect(response.status).toBe(429)
    expect(Object.fromEntries(response.headers)).toEqual({
      'content-type': 'application/problem+json',
      'retry-after': '10',
    })
    expect(await response.json()).toEqual({
      type: expect.stringContaining('quota-exceeded'),
      title: expect.any(String),
      status: 429,
      retryAfterMs: 9001,
    })
  })

  test('the types refuse an answer that may have been allowed', () => {
    // @ts-expect-error
    expect(tooManyRequests(allowed).headers.get('retry-after')).toBeNull()
    // @ts-expect-error
    tooManyRequests(all, api)
  })

  test('a database that is away is not the fault of the client', async () => {
    const away = { ...denied, degraded: true as const }
    expect(tooManyRequests({ ...all, results: [denied, away] }).status).toBe(503)
    const response = tooManyRequests({ ...denied, degraded: true }, api)
    expect(response.status).toBe(503)
    expect(await response.json()).toMatchObject({
      type: 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
      status: 503,
      retryAfterMs: 9001,
    })
  })
})
