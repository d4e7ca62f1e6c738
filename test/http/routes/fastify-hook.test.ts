import { eq } from 'drizzle-orm'
import { type RateLimitOptions, rateLimit } from 'drizzle-ratelimit/fastify'
import { clientKey } from 'drizzle-ratelimit/http'
import fastify, { type FastifyInstance, type FastifyReply, type RouteHandlerMethod } from 'fastify'
import { afterAll, describe, expect, test, vi } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Ratelimit, type RatelimitError, rateLimitEphemeral } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { away, newPrefix, perHour, statusesOf } from './serve.ts'

const database = useDatabase()

async function serve(app: FastifyInstance): Promise<string> {
  afterAll(() => app.close())
  return app.listen({ host: '127.0.0.1', port: 0 })
}

function newApp(): FastifyInstance {
  const app = fastify({ forceCloseConnections: true })
  app.setErrorHandler((error: RatelimitError, _request, reply) =>
    reply.code(500).send(error.code ?? error.message),
  )
  return app
}

function limited(
  options: RateLimitOptions,
  handler: RouteHandlerMethod = async () => 'hello',
): Promise<string> {
  const app = newApp()
  app.addHook('onRequest', rateLimit(options))
  app.get('/', handler)
  return serve(app)
}

describe('the hook', () => {
  test('a served request has the headers, and its handler the answer', async () => {
    const ratelimit = perHour(database.db, 5)
    const key: RateLimitOptions['key'] = (request) => clientKey(request, { trustedHops: 0 })
    const response = await fetch(await limited({ ratelimit, key }, async (request) => request.rateLimit))
    expect(response.headers.get('ratelimit-policy')).toBe(`"${ratelimit.prefix}";q=5;w=3600`)
    expect(response.headers.get('ratelimit')).toMatch(new RegExp(`^"${ratelimit.prefix}";r=4;t=3[56]\\d\\d$`))
    expect(await response.json()).toMatchObject({ success: true, limit: 5, remaining: 4, results: [{}] })
    expect(await ratelimit.getRemaining('127.0.0.1')).toMatchObject({ used: 1 })
  })

  test('a denial is 429 with a problem document, and no handler runs', async () => {
    const handler = vi.fn(async () => 'hello')
    const url = await limited({ ratelimit: perHour(database.db, 1), key: () => 'all' }, handler)
    await fetch(url)
    const denied = await fetch(url)
    expect(denied.status).toBe(429)
    expect(denied.headers.get('content-type')).toBe('application/problem+json; charset=utf-8')
    expect(Number(denied.headers.get('retry-after'))).toBeGreaterThan(3500)
    expect(await denied.json()).toMatchObject({ status: 429, remaining: 0, retryAfterMs: expect.any(Number) })
    expect(handler).toHaveBeenCalledTimes(1)
  })

  test('fifty requests at once stay within the limit', async () => {
    const url = await limited({ ratelimit: perHour(database.db, 7), key: () => 'all' })
    expect(await statusesOf(50, () => fetch(url))).toEqual({ 200: 7, 429: 43 })
  })

  test('onDenied answers in its own way, with status and headers set', async () => {
    const url = await limited({
      ratelimit: perHour(database.db, 0),
      key: () => 'all',
      headers: 'legacy',
      onDenied: ({ limit }, request, reply) => reply.send(`${request.url} has ${limit}`),
    })
    const denied = await fetch(url)
    expect([denied.status, await denied.text()]).toEqual([429, '/ has 0'])
    expect(denied.headers.get('x-ratelimit-limit')).toBe('0')
    expect(denied.headers.has('retry-after')).toBe(false)
  })

  test('a route has its own rate, by its pattern or by its path, and so has one that nobody serves', async () => {
    const ratelimit = perHour(database.db, 100)
    const rate = { '/orders/:id': 10, 'GET /files/*': 3, '/none': 5 }
    const app = newApp()
    app.addHook('preHandler', rateLimit({ ratelimit, key: () => 'all', rate }))
    app.setNotFoundHandler((_request, reply) => reply.code(404).send('nothing'))
    app.get('/orders/:id', async () => 'an order')
    app.get('/files/*', async () => 'a file')
    app.get('/others', async () => 'others')
    const url = await serve(app)
    for (const [method, path, used] of [
      ['GET', '/orders/1?x=/others', 10],
      ['HEAD', '/files/a/b', 13],
      ['GET', '/others', 14],
      ['GET', '/none', 19],
      ['GET', '/orders/%31', 29],
    ] as const) {
      await fetch(url + path, { method })
      expect(await ratelimit.getRemaining('all')).toMatchObject({ used })
    }
  })

  test('the hook of a route limits that route only', async () => {
    const ratelimit = perHour(database.db, 1)
    const app = newApp()
    app.get('/limited', { onRequest: rateLimit({ ratelimit, key: () => 'all' }) }, async () => 'hello')
    app.get('/free', async (request) => ({ answer: request.rateLimit }))
    const url = await serve(app)
    expect((await fetch(`${url}/limited`)).status).toBe(200)
    expect((await fetch(`${url}/limited`)).status).toBe(429)
    expect(await (await fetch(`${url}/free`)).json()).toEqual({})
  })

  test('a request without a key is an error, and shares no row with others', async () => {
    const key: RateLimitOptions['key'] = (request) => request.headers['x-user'] as string | undefined
    const response = await fetch(await limited({ ratelimit: perHour(database.db, 5), key }))
    expect([response.status, await response.text()]).toEqual([500, 'INVALID_KEY'])
  })

  test('a preflight passes, unless skip says otherwise', async () => {
    const headers = { origin: 'https://app.test', 'access-control-request-method': 'POST' }
    for (const [options, used] of [
      [{}, 0],
      [{ skip: () => false }, 1],
    ] as const) {
      const ratelimit = perHour(database.db, 5)
      const app = newApp()
      app.addHook('onRequest', rateLimit({ ratelimit, key: () => 'all', ...options }))
      app.options('/', async () => '')
      await fetch(await serve(app), { method: 'OPTIONS', headers })
      expect(await ratelimit.getRemaining('all')).toMatchObject({ used })
    }
  })
})

describe('a login', () => {
  const login: RouteHandlerMethod = async (request, reply) => {
    const { password } = request.query as { password?: string }
    if (password === 'crash') throw new Error('crashed')
    return reply.code(password === 'right' ? 200 : 401).send()
  }
  const setup = async (count: 'failures' | 'successes' = 'failures') => {
    const [perAddress, perAccount] = [perHour(database.db, 10), perHour(database.db, 3)]
    const limits = [
      { ratelimit: perAddress, key: (request: { ip: string }) => request.ip },
      { ratelimit: perAccount, key: () => 'ada@example.com' },
    ]
    const url = await limited({ limits, count }, login)
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
    const failed: RateLimitOptions['failed'] = (reply) => reply.getHeader('location') === '/login?error'
    for (const [to, used] of [
      ['/start', 0],
      ['/login?error', 1],
    ] as const) {
      const ratelimit = perHour(database.db, 2)
      const options: RateLimitOptions = { ratelimit, key: () => 'all', count: 'failures', failed }
      const url = await limited(options, async (_request, reply) => reply.redirect(to))
      await fetch(url, { redirect: 'manual' })
      const looked = async () => expect(await ratelimit.getRemaining('all')).toMatchObject({ used })
      await vi.waitFor(looked, PATIENTLY)
    }
  })

  describe.each(['failures', 'successes'] as const)('requests of which %s count', (count) => {
    /** What is charged, and what of it is still reserved. */
    const stored = async ({ prefix }: Ratelimit) => {
      const { count: charged, prevCount: reserved } = rateLimitEphemeral
      const isOurs = eq(rateLimitEphemeral.prefix, prefix)
      return database.db.select({ charged, reserved }).from(rateLimitEphemeral).where(isOurs)
    }
    const setup = (options: Partial<RateLimitOptions> = {}) => {
      const limiter = calendarWindow(4, 'month')
      const ratelimit = new Quota({ db: database.db, limiter, prefix: newPrefix(), durable: false })
      return { ratelimit, options: { ratelimit, key: () => 'all', count, ...options } as RateLimitOptions }
    }
    /** It counts, and nothing is reserved any more. */
    const expectSettled = async ({ ratelimit }: ReturnType<typeof setup>) => {
      const looked = async () => expect(await stored(ratelimit)).toEqual([{ charged: 1, reserved: 0 }])
      await vi.waitFor(looked, PATIENTLY)
    }

    test('a request whose client goes away before the response counts', async () => {
      const set = setup()
      const client = new AbortController()
      const replies: FastifyReply[] = []
      const url = await limited(set.options, (_request, reply) => {
        replies.push(reply)
        client.abort()
      })
      await expect(fetch(url, { signal: client.signal })).rejects.toThrow()
      await vi.waitFor(() => expect(replies[0]?.raw.closed).toBe(true), PATIENTLY)
      await expectSettled(set)
    })

    test('a request that is answered during the check is settled by that answer, and its handler does not run', async () => {
      const set = setup()
      const handler = vi.fn(async () => 'hello')
      const app = newApp()
      const replies = new Map<string, FastifyReply>()
      const answers: RateLimitOptions['key'] = async ({ id }) => {
        replies
          .get(id)
          ?.code(count === 'failures' ? 503 : 204)
          .send()
        return 'all'
      }
      const check = rateLimit({ ratelimit: set.ratelimit, key: answers, count })
      app.addHook('onRequest', (request, reply) => {
        replies.set(request.id, reply)
        return check(request, reply)
      })
      app.get('/', handler)
      await fetch(await serve(app))
      await expectSettled(set)
      expect(handler).not.toHaveBeenCalled()
    })
  })
})

describe('without the database', () => {
  const key = () => 'all'

  test.each([
    ['throw', 500],
    ['allow', 200],
    ['deny', 503],
  ] as const)("the limiter's onError: %s is answered with %d", async (onError, status) => {
    const response = await fetch(
      await limited({ ratelimit: perHour(away(database.db), 5, { onError }), key }),
    )
    expect(response.status).toBe(status)
    expect(response.headers.has('ratelimit')).toBe(false)
    expect(response.headers.get('retry-after')).toBe(onError === 'deny' ? '1' : null)
  })

  test.each([
    ['throw', 500],
    ['allow', 200],
    ['deny', 503],
  ] as const)("the hook's onError: %s is answered with %d", async (verdict, status) => {
    const told: unknown[] = []
    const onError: RateLimitOptions['onError'] = (error, request) => {
      told.push(request.url, (error as RatelimitError).code)
      return verdict
    }
    const url = await limited({ ratelimit: perHour(away(database.db), 5), key, onError })
    expect((await fetch(url)).status).toBe(status)
    expect(told).toEqual(['/', 'UNREACHABLE'])
  })
})
