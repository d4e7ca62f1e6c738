import { describe, expect, test, vi } from 'vitest'
import type { RatelimitError } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { FRAMEWORKS, type Options } from './frameworks.ts'
import { away, perHour, statusesOf } from './serve.ts'

// What limited routes do alike on each framework.

const database = useDatabase()

describe.each(Object.entries(FRAMEWORKS))('%s', (_, start) => {
  /** Limits everybody together to so many an hour. */
  const limited = (
    tokens: number,
    options: Omit<Options, 'limits'> = {},
    handler: Parameters<typeof start>[1] = () => ({ body: 'hello' }),
  ) => start({ limits: [{ ratelimit: perHour(database.db, tokens), key: () => 'all' }], ...options }, handler)

  test('a served request has the headers, and its handler the answer', async () => {
    const ratelimit = perHour(database.db, 5)
    const limits: Options['limits'] = [{ ratelimit, key: (request) => request.address() }]
    const url = await start({ limits }, (request) => ({ body: JSON.stringify(request.answer()) }))
    const response = await fetch(url)
    expect(response.headers.get('ratelimit-policy')).toBe(`"${ratelimit.prefix}";q=5;w=3600`)
    expect(response.headers.get('ratelimit')).toMatch(new RegExp(`^"${ratelimit.prefix}";r=4;t=3[56]\\d\\d$`))
    expect(await response.json()).toMatchObject({ success: true, limit: 5, remaining: 4, results: [{}] })
    expect(await ratelimit.getRemaining('127.0.0.1')).toMatchObject({ used: 1 })
  })

  test('a denial is 429 with a problem document, and no handler runs', async () => {
    const handler = vi.fn(() => ({ body: 'hello' }))
    const url = await limited(1, {}, handler)
    await fetch(url)
    const denied = await fetch(url)
    expect(denied.status).toBe(429)
    expect(denied.headers.get('content-type')).toMatch(/^application\/problem\+json(; charset=utf-8)?$/)
    expect(Number(denied.headers.get('retry-after'))).toBeGreaterThan(3500)
    expect(await denied.json()).toMatchObject({ status: 429, remaining: 0, retryAfterMs: expect.any(Number) })
    expect(handler).toHaveBeenCalledTimes(1)
  })

  test('fifty requests at once stay within the limit', async () => {
    const url = await limited(7)
    expect(await statusesOf(50, () => fetch(url))).toEqual({ 200: 7, 429: 43 })
  })

  test('onDenied answers in its own way, with status and headers set', async () => {
    const url = await limited(0, {
      headers: 'legacy',
      onDenied: ({ limit }, { path }) => `${path} has ${limit}`,
    })
    const denied = await fetch(url)
    expect([denied.status, await denied.text()]).toEqual([429, '/ has 0'])
    expect(denied.headers.get('x-ratelimit-limit')).toBe('0')
    expect(denied.headers.has('retry-after')).toBe(false)
  })

  test('a request without a key is an error, and shares no row with others', async () => {
    const limits: Options['limits'] = [{ ratelimit: perHour(database.db, 5), key: ({ user }) => user }]
    const response = await fetch(await start({ limits }, () => ({})))
    expect([response.status, await response.text()]).toEqual([500, 'INVALID_KEY'])
  })

  describe('a login', () => {
    const setup = async (count: 'failures' | 'successes' = 'failures') => {
      const [perAddress, perAccount] = [perHour(database.db, 10), perHour(database.db, 3)]
      const limits: Options['limits'] = [
        { ratelimit: perAddress, key: (request) => request.address() },
        { ratelimit: perAccount, key: () => 'ada@example.com' },
      ]
      const url = await start({ limits, count }, ({ password }) => {
        if (password === 'crash') throw new Error('crashed')
        return { status: password === 'right' ? 200 : 401 }
      })
      const send = (password: string) => fetch(`${url}?password=${password}`)
      const used = async () => (await perAccount.getRemaining('ada@example.com')).used
      return { send, used, perAddress }
    }

    test('is limited by its failures only, per address and per account', async () => {
      const { send, used, perAddress } = await setup()
      for (let i = 0; i < 5; i++) expect((await send('right')).status).toBe(200)
      await vi.waitFor(async () => expect(await used()).toBe(0), PATIENTLY)
      for (const status of [401, 401, 401, 429, 429]) expect((await send('wrong')).status).toBe(status)
      expect((await send('right')).status).toBe(429)
      expect(await perAddress.getRemaining('127.0.0.1')).toMatchObject({ used: 3 })
    })

    test('cannot be guessed by many at once', async () => {
      const { send } = await setup()
      expect(await statusesOf(50, () => send('wrong'))).toEqual({ 401: 3, 429: 47 })
    })

    test('a handler that crashes has failed', async () => {
      const { send, used } = await setup()
      expect((await send('crash')).status).toBe(500)
      await send('right')
      await vi.waitFor(async () => expect(await used()).toBe(1), PATIENTLY)
    })

    test('or only by its successes', async () => {
      const { send, used } = await setup('successes')
      for (const password of ['wrong', 'crash', 'right']) await send(password)
      await vi.waitFor(async () => expect(await used()).toBe(1), PATIENTLY)
    })

    test('the option failed decides what a failure is', async () => {
      for (const [location, used] of [
        ['/start', 0],
        ['/login?error', 1],
      ] as const) {
        const ratelimit = perHour(database.db, 2)
        const failed = (to: string | undefined) => to === '/login?error'
        const limits = [{ ratelimit, key: () => 'all' }]
        const url = await start({ limits, count: 'failures', failed }, () => ({ location }))
        await fetch(url, { redirect: 'manual' })
        const looked = async () => expect(await ratelimit.getRemaining('all')).toMatchObject({ used })
        await vi.waitFor(looked, PATIENTLY)
      }
    })
  })

  describe.each([
    ['throw', 500],
    ['allow', 200],
    ['deny', 503],
  ] as const)('without the database, onError: %s is answered with %d', (verdict, status) => {
    test('by the limiter', async () => {
      const limits = [{ ratelimit: perHour(away(database.db), 5, { onError: verdict }), key: () => 'all' }]
      const response = await fetch(await start({ limits }, () => ({})))
      expect(response.status).toBe(status)
      expect(response.headers.has('ratelimit')).toBe(false)
      expect(response.headers.get('retry-after')).toBe(verdict === 'deny' ? '1' : null)
    })

    test('by the option', async () => {
      const told: unknown[] = []
      const onError: Options['onError'] = (error, { path }) => {
        told.push(path, (error as RatelimitError).code)
        return verdict
      }
      const limits = [{ ratelimit: perHour(away(database.db), 5), key: () => 'all' }]
      expect((await fetch(await start({ limits, onError }, () => ({})))).status).toBe(status)
      expect(told).toEqual(['/', 'UNREACHABLE'])
    })
  })
})
