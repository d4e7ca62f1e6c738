import rateLimit, { type FastifyRateLimitStoreCtor, type RateLimitPluginOptions } from '@fastify/rate-limit'
import { rateLimitStore, type StoreConfig } from 'drizzle-ratelimit/fastify'
import fastify, { type FastifyInstance } from 'fastify'
import { afterAll, describe, expect, expectTypeOf, test } from 'vitest'
import type { RatelimitError } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { away, newPrefix, silent, statusesOf } from './serve.ts'

const database = useDatabase()

async function limited(
  options: RateLimitPluginOptions,
  routes = (_app: FastifyInstance) => {},
): Promise<string> {
  const app = fastify()
  await app.register(rateLimit, { timeWindow: '1 hour', ...options })
  app.get('/', async () => 'hello')
  app.setErrorHandler((error: RatelimitError & { statusCode?: number }, _request, reply) =>
    reply.status(error.statusCode ?? 500).send(error.code ?? 'denied'),
  )
  routes(app)
  afterAll(() => app.close())
  return app.listen({ host: '127.0.0.1', port: 0 })
}

function storeOf(options: Partial<StoreConfig> = {}) {
  return rateLimitStore({ db: database.db, prefix: newPrefix(), ...options } as StoreConfig)
}

type Store = Pick<InstanceType<ReturnType<typeof rateLimitStore>>, 'incr' | 'read'>

function asked(store: Store, method: 'incr' | 'read', key = 'key', timeWindow = 1000, max = 2) {
  return new Promise((resolve, reject) => {
    store[method](key, (error, result) => (error ? reject(error) : resolve(result)), timeWindow, max)
  })
}

test('@fastify/rate-limit accepts the store', () => {
  expectTypeOf<ReturnType<typeof rateLimitStore>>().toExtend<FastifyRateLimitStoreCtor>()
})

test('fifty requests at once at two instances stay within the limit', async () => {
  const prefix = newPrefix()
  const instance = () => limited({ max: 7, store: storeOf({ prefix }) })
  const urls = await Promise.all([instance(), instance()])
  let sent = 0
  expect(await statusesOf(50, () => fetch(urls[sent++ % 2] ?? ''))).toEqual({ 200: 7, 429: 43 })
})

test('a limit of Infinity denies nothing, and its header is a number', async () => {
  const url = await limited({ max: () => Number.POSITIVE_INFINITY, store: storeOf() })
  const served = await fetch(url)
  expect([served.status, served.headers.get('x-ratelimit-remaining')]).toEqual([200, 'Infinity'])
})

test('the headers of the plugin have the limit, and those of a denial the time to wait', async () => {
  const url = await limited({ max: 2, store: storeOf() })
  const served = await fetch(url)
  expect(served.headers.get('x-ratelimit-limit')).toBe('2')
  expect(served.headers.get('x-ratelimit-remaining')).toBe('1')
  expect(Number(served.headers.get('x-ratelimit-reset'))).toBeGreaterThan(3500)
  await fetch(url)
  const denied = await fetch(url)
  expect([denied.status, denied.headers.get('x-ratelimit-remaining')]).toEqual([429, '0'])
  expect(Number(denied.headers.get('retry-after'))).toBeGreaterThan(3500)
})

test('max 0 denies for one window after another', async () => {
  const denied = await fetch(await limited({ max: 0, store: storeOf() }))
  expect([denied.status, denied.headers.get('retry-after')]).toEqual([429, '3600'])
})

test('a route with a limit of its own counts for itself', async () => {
  const url = await limited({ max: 1, store: storeOf() }, (app) => {
    app.get('/own', { config: { rateLimit: { max: 2, timeWindow: '1 minute' } } }, async () => 'own')
    app.get('/other', async () => 'other')
  })
  const statuses = []
  for (const path of ['/own', '/own', '/own', '/', '/other']) statuses.push((await fetch(url + path)).status)
  expect(statuses).toEqual([200, 200, 429, 200, 429])
})

test('no key of a client names the row of a route', async () => {
  const keyGenerator = (request: { headers: Record<string, unknown> }) => String(request.headers['x-user'])
  const url = await limited({ max: 3, keyGenerator, store: storeOf() }, (app) => {
    app.get('/own', { config: { rateLimit: { max: 1 } } }, async () => 'own')
  })
  const send = async (path: string, user: string) =>
    (await fetch(url + path, { headers: { 'x-user': user } })).status
  expect([await send('/', 'GET /own ada'), await send('/own', 'ada')]).toEqual([200, 200])
})

describe('a groupId', () => {
  const otp = { max: 3, groupId: 'OTP' }
  const statusesAt = async (url: string, paths: readonly string[]) => {
    const statuses: number[] = []
    for (const path of paths) statuses.push((await fetch(url + path)).status)
    return statuses
  }

  test('is one count for all its routes and handlers, and for no others', async () => {
    const url = await limited({ max: 3, store: storeOf() }, (app) => {
      app.get('/send', { config: { rateLimit: otp } }, async () => 'sent')
      app.get('/verify', { config: { rateLimit: otp } }, async () => 'right')
      app.get('/again', { config: { rateLimit: { ...otp, groupId: 'again' } } }, async () => 'sent')
      const preHandler = app.rateLimit(otp)
      app.get('/handled', { config: { rateLimit: false }, preHandler }, async () => 'handled')
    })
    const paths = ['/send', '/verify', '/send', '/verify', '/send', '/again', '/handled']
    expect(await statusesAt(url, paths)).toEqual([200, 200, 200, 429, 429, 200, 429])
  })

  test('may have routes with a max of their own', async () => {
    const url = await limited({ store: storeOf() }, (app) => {
      app.get('/few', { config: { rateLimit: { ...otp, max: 1 } } }, async () => 'few')
      app.get('/many', { config: { rateLimit: otp } }, async () => 'many')
    })
    expect(await statusesAt(url, ['/many', '/few', '/many', '/many', '/many'])).toEqual([
      200, 429, 200, 200, 429,
    ])
  })

  const refused = expect.objectContaining({
    code: 'INVALID_OPTION',
    message: expect.stringMatching('timeWindow'),
  })

  test('has one timeWindow: a shorter one would end the count of a longer one', async () => {
    await limited({ store: storeOf() }, (app) => {
      app.get('/send', { config: { rateLimit: otp } }, async () => 'sent')
      const route = { config: { rateLimit: { ...otp, timeWindow: 200 } } }
      expect(() => app.get('/verify', route, async () => 'right')).toThrow(refused)
      expect(() => app.rateLimit({ ...otp, timeWindow: () => 200 })).toThrow(refused)
      expect(() => app.rateLimit({ ...otp, timeWindow: '60 minutes' })).not.toThrow()
    })
  })

  test('so has a store that several plugins share', async () => {
    const store = storeOf()
    await limited({ store, timeWindow: '1 hour' })
    await limited({ store, timeWindow: '1 hour' })
    await expect(limited({ store, timeWindow: 200 })).rejects.toEqual(refused)
  })
})

describe('handlers of app.rateLimit', () => {
  test('count for themselves: a short window of one does not reset a long one of another', async () => {
    const clock = new TestClock()
    const url = await limited({ global: false, store: storeOf({ clock: clock.now }) }, (app) => {
      const login = app.rateLimit({ max: 5, timeWindow: '1 hour', groupId: 'login' })
      const search = app.rateLimit({ max: 5, timeWindow: 200, groupId: 'search' })
      app.get('/login', { preHandler: login }, async () => 'login')
      app.get('/search', { preHandler: search }, async () => 'search')
    })
    const statuses: number[] = []
    for (let i = 0; i < 60; i++) {
      statuses.push((await fetch(`${url}/login`)).status)
      clock.advance(250)
      expect((await fetch(`${url}/search`)).status).toBe(200)
    }
    expect(statuses.filter((status) => status === 200)).toHaveLength(5)
  })

  test.each(['rateLimit', 'createRateLimit'] as const)(
    '%s needs a name for what it counts',
    async (method) => {
      const refused = expect.objectContaining({
        code: 'INVALID_OPTION',
        message: expect.stringMatching('groupId'),
      })
      await limited({ store: storeOf() }, (app) => {
        expect(() => app[method]({ max: 5 })).toThrow(refused)
        expect(() => app.rateLimit({ max: 5, groupId: '' })).toThrow(refused)
        expect(() => app[method]()).not.toThrow()
      })
    },
  )

  test('no key of a client names another scope', async () => {
    const Store = storeOf()
    const get = { method: 'GET', url: '/a' }
    const children = [
      { routeInfo: get },
      { routeInfo: { ...get, url: '/a b' } },
      { routeInfo: { ...get, url: '/a%20b' } },
      { routeInfo: { ...get, url: '/a|host=b' } },
      { routeInfo: { ...get, constraints: { host: 'b' } } },
      { routeInfo: { ...get, constraints: { host: 'c' } } },
      { groupId: 'GET' },
      { groupId: 'GET /a' },
      { groupId: 'a' },
      { groupId: 'a b' },
    ]
    const stores = [new Store({}), ...children.map((child) => new Store({}).child(child))]
    const keys = ['b x', 'x', '/a x', '/a b x', 'GET /a x', 'group a x', 'a x', '']
    for (const store of stores)
      for (const key of keys) expect(await asked(store, 'incr', key)).toMatchObject({ current: 1 })
  })
})

describe('with skipOnError', () => {
  test.each([['k'.repeat(2000)], ['a%00b'], ['%ED%A0%80']])(
    'no key passes without a limit: %#',
    async (user) => {
      const keyGenerator = (request: { query: unknown }) => String((request.query as { user: string }).user)
      const url = await limited({ max: 2, keyGenerator, skipOnError: true, store: storeOf() })
      expect(await statusesOf(6, () => fetch(`${url}/?user=${user}`))).toEqual({ 200: 2, 429: 4 })
      expect((await fetch(`${url}/?user=${user}2`)).status).toBe(200)
    },
  )
})

test('with skipOnError a client that floods its own key passes only by the timeout of its first call', async () => {
  const flood = async (path: string) => {
    const store = storeOf({ db: silent(database.db), timeout: '1s' })
    const url = await limited({ max: 5, skipOnError: true, store }, (app) => {
      const look = app.createRateLimit()
      app.get('/look', { config: { rateLimit: false } }, async (request, reply) => {
        const { isAllowed, isExceeded } = {
          isExceeded: false,
          ...(await look(request, { increment: false })),
        }
        return reply.status(!isAllowed && isExceeded ? 429 : 200).send()
      })
    })
    return statusesOf(20, () => fetch(url + path))
  }
  const passed = { 200: 1, 429: 19 }
  expect(await Promise.all(['', '/look'].map(flood))).toEqual([passed, passed])
})

test('each request may have its own limit', async () => {
  const max = (request: { headers: Record<string, unknown> }) => Number(request.headers['x-max'])
  const url = await limited({ max, store: storeOf() })
  const send = async (max: string) => (await fetch(url, { headers: { 'x-max': max } })).status
  expect([await send('1'), await send('1'), await send('3'), await send('3')]).toEqual([200, 429, 200, 200])
})

describe('the store', () => {
  test('counts in a window that begins with the first request; a denial writes nothing', async () => {
    const clock = new TestClock()
    const store = new (storeOf({ clock: clock.now }))({})
    expect(await asked(store, 'read')).toEqual({ current: 0, ttl: 0 })
    expect(await asked(store, 'incr')).toEqual({ current: 1, ttl: 1000 })
    clock.advance(400)
    expect(await asked(store, 'incr')).toEqual({ current: 2, ttl: 600 })
    for (let i = 0; i < 3; i++) expect(await asked(store, 'incr')).toEqual({ current: 3, ttl: 600 })
    expect(await asked(store, 'read')).toEqual({ current: 2, ttl: 600 })
    clock.advance(600)
    expect(await asked(store, 'incr')).toEqual({ current: 1, ttl: 1000 })
  })

  test('an error reaches the callback', async () => {
    const store = new (storeOf())({})
    await expect(asked(store, 'incr', 'key', 0)).rejects.toMatchObject({ code: 'INVALID_DURATION' })
    await expect(asked(store, 'incr', 'key', 1000, -1)).rejects.toMatchObject({ code: 'INVALID_LIMIT' })
  })

  test.each([{ ban: 3 }, { continueExceeding: true }, { exponentialBackoff: true }])(
    'refuses %j',
    (options) => {
      const Store = storeOf()
      const refused = expect.objectContaining({ code: 'INVALID_OPTION' })
      expect(() => new Store(options)).toThrow(refused)
      expect(() => new Store({ ban: -1 }).child(options)).toThrow(refused)
    },
  )
})

test.each([
  ['throw', 500],
  ['allow', 200],
  ['deny', 429],
] as const)('without the database, onError: %s is answered with %d', async (onError, status) => {
  const url = await limited({ max: 5, store: storeOf({ db: away(database.db), onError }) })
  expect((await fetch(url)).status).toBe(status)
})
