import { AsyncResource } from 'node:async_hooks'
import { type RateLimitOptions, RateLimitStore, rateLimit, type StoreConfig } from 'drizzle-ratelimit/express'
import { clientKey } from 'drizzle-ratelimit/http'
import express, { type ErrorRequestHandler, type Express, type RequestHandler, type Response } from 'express'
import { rateLimit as expressRateLimit, type Options, type Store } from 'express-rate-limit'
import { describe, expect, expectTypeOf, test, vi } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Ratelimit, type RatelimitError } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { watch } from '../../support/watch.ts'
import { away, newPrefix, perHour, serve, silent, statusesOf } from './serve.ts'
import { untilOneCounts } from './settled.ts'

const database = useDatabase()

const answerError: ErrorRequestHandler = (error: RatelimitError, _req, res, _next) => {
  res.status(500).send(error.code ?? error.message)
}

function limited(
  options: RateLimitOptions,
  handler: RequestHandler = (_req, res) => void res.send('hello'),
): Express {
  const app = express()
  app.use(rateLimit(options))
  app.get('/', handler)
  app.use(answerError)
  return app
}

describe('the middleware', () => {
  test("the address that Express has found by its own 'trust proxy' can be the key", async () => {
    const ratelimit = perHour(database.db, 5)
    const key: RateLimitOptions['key'] = (req) => clientKey(req, { address: req.ip, trustedHops: 0 })
    const url = await serve(limited({ ratelimit, key }).set('trust proxy', 1))
    await fetch(url, { headers: { 'x-forwarded-for': '203.0.113.9, 2001:db8:1:2:3::4' } })
    expect(await ratelimit.getRemaining('2001:db8:1:2::/64')).toMatchObject({ used: 1 })
  })

  test('a route has its own rate, by its pattern or by its path', async () => {
    const ratelimit = perHour(database.db, 100)
    const limit = rateLimit({ ratelimit, key: () => 'all', rate: { '/orders/:id': 10, 'POST /reports': 20 } })
    const app = express()
    app.get('/orders/:id', limit, (_req, res) => void res.send('an order'))
    app.use('/', limit, (_req, res) => void res.send('others'))
    const url = await serve(app)
    await fetch(`${url}/orders/1`)
    expect(await ratelimit.getRemaining('all')).toMatchObject({ used: 10 })
    await fetch(`${url}/reports/`, { method: 'POST' })
    expect(await ratelimit.getRemaining('all')).toMatchObject({ used: 30 })
    await fetch(`${url}/reports`)
    expect(await ratelimit.getRemaining('all')).toMatchObject({ used: 31 })
  })

  test('a route at the root of a mounted router, of several patterns, and of none that has a name', async () => {
    const ratelimit = perHour(database.db, 100)
    const rate = { '/free': 0, '/orders/:id': 10, '/all-orders': 2 }
    const limit = rateLimit({ ratelimit, key: () => 'all', rate })
    const app = express()
    app.use(
      '/free',
      express.Router().get('/', limit, (_req, res) => void res.send('free')),
    )
    app.get(['/all-orders', '/orders/:id'], limit, (_req, res) => void res.send('orders'))
    app.get([/^\/pattern/], limit, (_req, res) => void res.send('a pattern'))
    const url = await serve(app)
    for (const [path, used] of [
      ['/free', 0],
      ['/FREE', 1],
      ['/orders/7', 11],
      ['/all-orders', 21],
      ['/pattern', 22],
    ] as const) {
      expect((await fetch(url + path)).status).toBe(200)
      expect(await ratelimit.getRemaining('all')).toMatchObject({ used })
    }
  })
})

test.each(['failures', 'successes'] as const)(
  'a failed that throws changes no response: the request stays charged, and onError gets the error; %s',
  async (count) => {
    const ratelimit = perHour(database.db, 2)
    const told: unknown[] = []
    const onError: RateLimitOptions['onError'] = (error, req) => {
      told.push((error as Error).message, req.path)
      return 'throw'
    }
    const failed: RateLimitOptions['failed'] = () => {
      throw new TypeError('no user')
    }
    const options: RateLimitOptions = { ratelimit, key: () => 'all', count, failed }
    expect((await fetch(await serve(limited({ ...options, onError })))).status).toBe(200)
    await vi.waitFor(() => expect(told).toEqual(['no user', '/']), PATIENTLY)
    expect((await fetch(await serve(limited(options)))).status).toBe(200)
    await new Promise(setImmediate)
    expect(await ratelimit.getRemaining('all')).toMatchObject({ used: 2 })
  },
)

describe.each(['failures', 'successes'] as const)('requests of which %s count', (count) => {
  const setup = (options: Partial<RateLimitOptions> = {}) => {
    const limiter = calendarWindow(4, 'month')
    const config = { db: database.db, limiter, prefix: newPrefix(), thresholds: [0.5] }
    const ratelimit = new Quota({ ...config, durable: false })
    const told: unknown[] = []
    const onError = (error: unknown) => {
      told.push(error)
      return 'throw' as const
    }
    const common = { ratelimit, key: () => 'all', count, onError }
    return { ratelimit, told, options: { ...common, ...options } as RateLimitOptions }
  }
  /** It counts, nothing is reserved any more, and nothing is settled twice. */
  const expectSettled = async ({ ratelimit, told }: ReturnType<typeof setup>) => {
    await untilOneCounts(database, ratelimit)
    expect(await ratelimit.limit('all')).toMatchObject({ remaining: 2, crossed: [0.5] })
    expect(told).toEqual([])
  }

  test('a request whose client goes away before the response counts', async () => {
    const set = setup()
    const client = new AbortController()
    const responses: Response[] = []
    const handler: RequestHandler = (_req, res) => {
      responses.push(res)
      client.abort()
    }
    const url = await serve(limited(set.options, handler))
    await expect(fetch(url, { signal: client.signal })).rejects.toThrow()
    const [res] = responses
    await vi.waitFor(() => expect(res?.closed).toBe(true), PATIENTLY)
    res?.sendStatus(200)
    await expectSettled(set)
  })

  test('a request whose client goes away during the check counts', async () => {
    const client = new AbortController()
    const set = setup({
      key: async (req) => {
        const gone = new Promise((resolve) => req.res?.once('close', resolve))
        client.abort()
        await gone
        return 'all'
      },
    })
    const url = await serve(limited(set.options))
    await expect(fetch(url, { signal: client.signal })).rejects.toThrow()
    await expectSettled(set)
  })

  test('a request that another middleware answers during the check is settled by that answer', async () => {
    const set = setup({
      key: async (req) => {
        const sent = new Promise((resolve) => req.res?.once('finish', resolve))
        req.res?.sendStatus(count === 'failures' ? 503 : 204)
        await sent
        return 'all'
      },
    })
    const handler = vi.fn()
    await fetch(await serve(limited(set.options, handler)))
    await expectSettled(set)
    expect(handler).not.toHaveBeenCalled()
  })

  test('an answered request is settled once', async () => {
    const set = setup()
    const handler: RequestHandler = (_req, res) => void res.sendStatus(count === 'failures' ? 401 : 200)
    await fetch(await serve(limited(set.options, handler)))
    await expectSettled(set)
  })
})

describe('the store for express-rate-limit', () => {
  const SILENT = { error: () => {}, warn: () => {}, info: () => {}, debug: () => {} }

  test('has the type that express-rate-limit asks for', () => {
    expectTypeOf<RateLimitStore>().toExtend<Store>()
  })

  const stored = (options: Partial<Options>) => {
    const app = express()
    app.use(expressRateLimit({ legacyHeaders: false, standardHeaders: 'draft-8', ...options }))
    app.get('/', (req, res) => void res.sendStatus(req.query['fails'] ? 401 : 200))
    app.use(answerError)
    return serve(app)
  }

  test('fifty requests at once at two instances stay within the limit', async () => {
    const prefix = newPrefix()
    const instance = () =>
      stored({ windowMs: 3_600_000, limit: 7, store: new RateLimitStore({ db: database.db, prefix }) })
    const urls = await Promise.all([instance(), instance()])
    let sent = 0
    expect(await statusesOf(50, () => fetch(urls[sent++ % 2] ?? ''))).toEqual({ 200: 7, 429: 43 })
    const denied = await fetch(urls[0] ?? '')
    expect(Number(denied.headers.get('retry-after'))).toBeGreaterThan(3500)
  })

  test('counts failures only', async () => {
    const store = new RateLimitStore({ db: database.db, prefix: newPrefix() })
    const url = await stored({
      windowMs: 3_600_000,
      limit: 2,
      store,
      skipSuccessfulRequests: true,
      keyGenerator: () => 'all',
    })
    for (let i = 0; i < 3; i++) {
      expect((await fetch(url)).status).toBe(200)
      await vi.waitFor(async () => expect(await store.get('all')).toBeUndefined(), PATIENTLY)
    }
    for (const status of [401, 401, 429]) expect((await fetch(`${url}?fails=1`)).status).toBe(status)
  })

  test.each([['k'.repeat(2000)], ['a%00b'], ['']])(
    'with passOnStoreError no key passes without a limit: %#',
    async (user) => {
      const store = new RateLimitStore({ db: database.db, prefix: newPrefix() })
      const keyGenerator = (req: { query: Record<string, unknown> }) => String(req.query['user'])
      const url = await stored({ windowMs: 3_600_000, limit: 2, store, keyGenerator, passOnStoreError: true })
      expect(await statusesOf(6, () => fetch(`${url}?user=${user}`))).toEqual({ 200: 2, 429: 4 })
      const key = decodeURIComponent(user)
      expect(await store.get(key)).toMatchObject({ totalHits: 6 })
      await store.resetKey(key)
      expect((await fetch(`${url}?user=${user}`)).status).toBe(200)
    },
  )

  test('with passOnStoreError a client that floods its own key passes only by the timeout of its first call', async () => {
    const store = new RateLimitStore({ db: silent(database.db), prefix: newPrefix(), timeout: '1s' })
    const url = await stored({ limit: 5, store, keyGenerator: () => 'all', passOnStoreError: true })
    expect(await statusesOf(20, () => fetch(url))).toEqual({ 200: 1, 429: 19 })
  })

  test('a hit of a window that has ended is not given back to the next one', async () => {
    const clock = new TestClock(Date.now() + 3_600_000)
    const store = new RateLimitStore({ db: database.db, prefix: newPrefix(), clock: clock.now })
    const slow: Response[] = []
    const app = express()
    const counts = {
      windowMs: 60_000,
      limit: 5,
      store,
      skipSuccessfulRequests: true,
      keyGenerator: () => 'all',
    }
    app.use(expressRateLimit(counts))
    app.get('/slow', (_req, res) => void slow.push(res))
    app.get('/fails', (_req, res) => void res.sendStatus(401))
    app.get('/', (_req, res) => void res.sendStatus(200))
    const url = await serve(app)
    const begun = [fetch(`${url}/slow`), fetch(`${url}/slow`)]
    await vi.waitFor(() => expect(slow).toHaveLength(2), PATIENTLY)
    clock.advance(60_000)
    for (let i = 0; i < 3; i++) await fetch(`${url}/fails`)
    for (const res of slow) res.sendStatus(200)
    await Promise.all(begun)
    await fetch(url)
    await vi.waitFor(async () => expect(await store.get('all')).toMatchObject({ totalHits: 3 }), PATIENTLY)
    await new Promise(setImmediate)
    expect(await store.get('all')).toMatchObject({ totalHits: 3 })
  })

  test('limiters with other windows cannot share a store: the shorter would end the count of the longer', async () => {
    const store = new RateLimitStore({ db: database.db, prefix: newPrefix() })
    const limit = { limit: 2, store, keyGenerator: () => 'all', validate: false, logger: SILENT }
    const urls = [await stored({ ...limit, windowMs: 3_600_000 }), await stored({ ...limit, windowMs: 200 })]
    for (const url of urls) {
      const response = await fetch(url)
      expect([response.status, await response.text()]).toEqual([500, 'INVALID_OPTION'])
    }
  })

  test('a window that is refused is no shorter window: each request is an error', async () => {
    const store = new RateLimitStore({ db: database.db, prefix: newPrefix() })
    const url = await stored({ limit: 2, windowMs: -1, store, validate: false, logger: SILENT })
    const response = await fetch(url)
    expect([response.status, await response.text()]).toEqual([500, 'INVALID_DURATION'])
  })

  test('of hits that were counted one after another, the first is given back first', async () => {
    const clock = new TestClock()
    const store = new RateLimitStore({ db: database.db, prefix: newPrefix(), clock: clock.now })
    store.init({ windowMs: 1000 })
    await store.increment('key')
    clock.advance(1000)
    await store.increment('key')
    await store.decrement('key')
    expect(await store.get('key')).toMatchObject({ totalHits: 1 })
    await store.decrement('key')
    expect(await store.get('key')).toBeUndefined()
  })

  test('a hit that was not counted gives back none of another request', async () => {
    let isAway = false
    const { db } = watch(database.db, () => {
      if (isAway) throw Object.assign(new Error('away'), { code: 'ECONNREFUSED', syscall: 'connect' })
    })
    const store = new RateLimitStore({ db, prefix: newPrefix(), onError: 'deny' })
    store.init({ windowMs: 3_600_000 })
    const request = <T>(work: () => Promise<T>) => new AsyncResource('request').runInAsyncScope(work)
    await request(() => store.increment('key'))
    isAway = true
    await request(async () => {
      expect(await store.increment('key')).toMatchObject({ totalHits: Number.MAX_SAFE_INTEGER })
      isAway = false
      await store.decrement('key')
    })
    expect(await store.get('key')).toMatchObject({ totalHits: 1 })
  })

  test('counts hits in a window, and starts again after it', async () => {
    const clock = new TestClock()
    const store = new RateLimitStore({ db: database.db, prefix: newPrefix(), clock: clock.now })
    expect(store.localKeys).toBe(false)
    store.init({ windowMs: 1000 })
    const resetTime = new Date(clock.ms + 1000)
    expect(await store.get('key')).toBeUndefined()
    expect(await store.increment('key')).toEqual({ totalHits: 1, resetTime })
    clock.advance(999)
    expect(await store.increment('key')).toEqual({ totalHits: 2, resetTime })
    await store.decrement('key')
    expect(await store.get('key')).toEqual({ totalHits: 1, resetTime })
    await store.resetKey('key')
    expect(await store.get('key')).toBeUndefined()
    await store.increment('key')
    clock.advance(1000)
    expect(await store.increment('key')).toMatchObject({ totalHits: 1 })
  })

  test.each([
    ['throw', 500],
    ['allow', 200],
    ['deny', 429],
  ] as const)('without the database, onError: %s is answered with %d', async (onError, status) => {
    const store = new RateLimitStore({ db: away(database.db), prefix: newPrefix(), onError } as StoreConfig)
    expect((await fetch(await stored({ limit: 5, store }))).status).toBe(status)
  })
})

test('options without a meaning are refused', () => {
  const ratelimit = new Ratelimit({ db: database.db, limiter: Ratelimit.unlimited(), prefix: newPrefix() })
  // @ts-expect-error a limit needs a key
  expect(() => rateLimit({ ratelimit })).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
  // @ts-expect-error one limit or several
  expectTypeOf<{ ratelimit: Ratelimit; key: () => string; limits: [] }>().toExtend<RateLimitOptions>()
})
