import { getRequestListener } from '@hono/node-server'
import { type RateLimitOptions, rateLimit } from 'drizzle-ratelimit/hono'
import { block, blocks, lockout } from 'drizzle-ratelimit/lockout'
import { type Handler, Hono, type MiddlewareHandler } from 'hono'
import { describe, expect, test } from 'vitest'
import { Ratelimit, type RatelimitConfig } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { newPrefix, perHour, serve } from './serve.ts'

const database = useDatabase()
const key = () => 'all'

function limited(options: RateLimitOptions): Hono {
  const app = new Hono()
  app.use(rateLimit(options))
  app.get('/', (c) => c.json(c.var.rateLimit))
  app.onError((error, c) => c.text('code' in error ? String(error.code) : error.message, 500))
  return app
}

function start(app: Hono): Promise<string> {
  return serve(getRequestListener(app.fetch))
}

test.each<[string, Partial<RatelimitConfig>]>([
  ['a lockout', { limiter: lockout(5, '15m', { block: '10m' }) }],
  ['a limit with blocks', { limiter: Ratelimit.fixedWindow(5, '1m'), use: [blocks()] }],
])('a key that is blocked is denied until the end of the block, under %s', async (_, options) => {
  const common = { db: database.db, prefix: newPrefix(), clock: () => new Date(1_800_000_000_000) }
  const ratelimit = new Ratelimit({ ...common, ...options } as RatelimitConfig)
  await block(ratelimit, 'all', '90s')
  const onDenied: RateLimitOptions['onDenied'] = ({ blockedUntil }, c) => c.json({ blockedUntil }, 429)
  const blocked = await fetch(await start(limited({ ratelimit, key, onDenied })))
  expect([blocked.status, blocked.headers.get('retry-after')]).toEqual([429, '90'])
  expect(await blocked.json()).toEqual({ blockedUntil: 1_800_000_090_000 })
})

test('a response of the handler that cannot be changed has the headers too', async () => {
  const app = new Hono()
  app.use(rateLimit({ ratelimit: perHour(database.db, 5), key, headers: 'legacy' }))
  app.get('/', () => Response.redirect('http://localhost/'))
  const response = await fetch(await start(app), { redirect: 'manual' })
  expect([response.status, response.headers.get('x-ratelimit-limit')]).toEqual([302, '5'])
})

// On Bun a response that is made of another one's body loses the content type.
test('the response of the handler is sent itself, and not a copy', async () => {
  const app = new Hono()
  const made = new Response('hello')
  let sent: Response | undefined
  app.use(async (c, next) => {
    await next()
    sent = c.res
  })
  app.use(rateLimit({ ratelimit: perHour(database.db, 5), key }))
  app.get('/', () => made)
  const response = await app.request('/')
  expect([response.status, response.headers.has('ratelimit'), sent === made]).toEqual([200, true, true])
})

test('the headers are those of the last limit', async () => {
  const app = new Hono()
  app.use(rateLimit({ ratelimit: perHour(database.db, 100), key, headers: 'legacy' }))
  app.get('/', rateLimit({ ratelimit: perHour(database.db, 1), key, headers: 'legacy' }), (c) =>
    c.json(c.var.rateLimit),
  )
  const url = await start(app)
  for (const status of [200, 429]) {
    const response = await fetch(url)
    expect([response.status, response.headers.get('x-ratelimit-limit')]).toEqual([status, '1'])
  }
})

test('the answer is that of the last limit that was checked', async () => {
  const app = new Hono()
  app.use(rateLimit({ ratelimit: perHour(database.db, 5), key }))
  const unchecked = rateLimit({ ratelimit: perHour(database.db, 1), key, skip: () => true })
  app.get('/', unchecked, (c) => c.json(c.var.rateLimit ?? null))
  expect(await (await app.request('/')).json()).toMatchObject({ limit: 5 })
})

test('a route has its own rate, by its pattern or by its path', async () => {
  const ratelimit = perHour(database.db, 100)
  const app = new Hono()
  app.use(rateLimit({ ratelimit, key, rate: { '/orders/:id': 10, 'POST /reports': 20, '/free': 0 } }))
  app.get('/orders/:id', (c) => c.text('an order'))
  app.get('/free', (c) => c.json(c.var.rateLimit ?? null))
  const url = await start(app)
  const used = async () => (await ratelimit.getRemaining('all')).used
  await fetch(`${url}/orders/1`)
  expect(await used()).toBe(10)
  await fetch(`${url}/reports`, { method: 'POST' })
  expect(await used()).toBe(30)
  await fetch(`${url}/reports`)
  expect(await used()).toBe(31)
  expect(await (await fetch(`${url}/free`)).json()).toBeNull()
  expect(await used()).toBe(31)
})

describe('a table of rates', () => {
  const rate = {
    'GET /orders/:id': 10,
    'GET /orders/latest': 2,
    '/files/:name': 30,
    '/files/*': 20,
    'POST /proxied': 40,
    '/*': 3,
  }
  const text: Handler = (c) => c.text('')
  const next: MiddlewareHandler = (_c, next) => next()

  const cost = async (routed: (app: Hono) => unknown, path: string, init: RequestInit, table = rate) => {
    const ratelimit = perHour(database.db, 100)
    const app = new Hono()
    app.use(rateLimit({ ratelimit, key, rate: table }))
    routed(app)
    await app.request(path, init)
    return (await ratelimit.getRemaining('all')).used
  }

  test.each<[string, (app: Hono) => unknown, string, number, RequestInit?]>([
    ['before a catch-all', (app) => app.get('/orders/:id', text).get('*', text), '/orders/7', 10],
    ['behind a catch-all', (app) => app.use('*', next).get('/orders/:id', text), '/orders/7', 10],
    [
      'behind its own middleware',
      (app) => app.use('/files/*', next).get('/files/:name', text),
      '/files/a',
      30,
    ],
    [
      'of two, the one that answers',
      (app) => app.get('/orders/latest', text).get('/orders/:id', text),
      '/orders/latest',
      2,
    ],
    [
      'of two, the one that answers first',
      (app) => app.get('/orders/:id', text).get('/orders/latest', text),
      '/orders/latest',
      10,
    ],
    ['in another spelling', (app) => app.get('/orders/:id', text), '/orders/LATEST', 10],
    ['with a *', (app) => app.get('/files/*', text).get('*', text), '/files/a/b', 20],
    ['of an app in an app', (app) => app.route('/orders', new Hono().get('/:id', text)), '/orders/7', 10],
    ['of HEAD', (app) => app.get('/orders/:id', text), '/orders/7', 10, { method: 'HEAD' }],
    ['that only a catch-all answers', (app) => app.all('*', text), '/proxied', 40, { method: 'POST' }],
    ['whose pattern is not named', (app) => app.post('/:any', text), '/proxied', 40, { method: 'POST' }],
    ['that only a catch-all names', (app) => app.get('/others', text), '/others', 3],
  ])('a route %s', async (_name, routed, path, used, init = {}) => {
    expect(await cost(routed, path, init)).toBe(used)
  })

  test.each<[string, (app: Hono) => unknown, string, number, Record<string, number>]>([
    [
      'a handler before a middleware that is cheaper',
      (app) => app.use('/users/:id', next).get('/users/me', text),
      ...(['/users/me', 10, { '/users/:id': 2, 'GET /users/me': 10 }] as const),
    ],
    [
      'what answers before a path that is spelled as a cheaper one',
      (app) => app.get('/files/cheap', text).get('/files/*', text),
      ...(['/files/CHEAP', 20, { '/files/*': 20, '/files/cheap': 0 }] as const),
    ],
    [
      'of two with a *, the one that answers',
      (app) => app.get('/api/*', text).get('/:anything/*', text),
      ...(['/api/x', 10, { '/api/*': 10, '/:anything/*': 1 }] as const),
    ],
    [
      'what answers all methods before a middleware that is cheaper',
      (app) => app.use('*', next).all('/api/*', text),
      ...(['/api/x', 10, { '/*': 1, '/api/*': 10 }] as const),
    ],
    [
      'the same in an app that handles its own errors',
      (app) =>
        app.use('*', next).route(
          '/api',
          new Hono().all('/*', text).onError((_, c) => c.text('')),
        ),
      ...(['/api/x', 10, { '/*': 1, '/api/*': 10 }] as const),
    ],
    [
      'what answers all methods before a middleware with a parameter',
      (app) => app.use('/users/:id', next).all('/users/me', text),
      ...(['/users/me', 10, { '/users/:id': 2, '/users/me': 10 }] as const),
    ],
    [
      'of two middlewares, the dearer',
      (app) => app.use('*', next).use('/api/*', next),
      ...(['/api/x', 10, { '/*': 1, '/api/*': 10 }] as const),
    ],
    [
      'a path that a catch-all answers, if it is spelled exactly',
      (app) => app.all('*', text),
      ...(['/free', 0, { '/*': 10, '/free': 0 }] as const),
    ],
    [
      'a catch-all, if the path is spelled in another way',
      (app) => app.all('*', text),
      ...(['/FREE', 10, { '/*': 10, '/free': 0 }] as const),
    ],
  ])('%s', async (_name, routed, path, used, table) => {
    expect(await cost(routed, path, {}, table as never)).toBe(used)
  })

  test('a route that the table does not name costs 1', async () => {
    const routed = (app: Hono) => app.get('/others/:id', text).get('*', text)
    expect(await cost(routed, '/others/7', {}, { ...rate, '/*': 1 })).toBe(1)
  })
})

test('a failed that throws changes no response: the request stays charged, and onError gets the error', async () => {
  const ratelimit = perHour(database.db, 2)
  const told: unknown[] = []
  const onError: RateLimitOptions['onError'] = (error) => {
    told.push((error as Error).message)
    return 'throw'
  }
  const failed: RateLimitOptions['failed'] = () => {
    throw new TypeError('no user')
  }
  const url = await start(limited({ ratelimit, key, count: 'failures', failed, onError }))
  expect((await fetch(url)).status).toBe(200)
  expect(told).toEqual(['no user'])
  expect(await ratelimit.getRemaining('all')).toMatchObject({ used: 1 })
})

test('a handler that throws no Error has failed', async () => {
  const ratelimit = perHour(database.db, 2)
  const app = new Hono()
  app.use(rateLimit({ ratelimit, key, count: 'successes' }))
  app.get('/', () => {
    throw 'no Error'
  })
  const thrown = Promise.resolve(app.request('/')).catch((reason: unknown) => reason)
  expect(await thrown).toBe('no Error')
  expect(await ratelimit.getRemaining('all')).toMatchObject({ used: 0 })
})

test('a login whose success forgets the failures before it', async () => {
  const ratelimit = perHour(database.db, 3)
  const app = new Hono()
  app.use(rateLimit({ ratelimit, key, count: 'failures', resetOnSuccess: true }))
  app.get('/', (c) => c.text('', c.req.query('password') === 'right' ? 200 : 401))
  const url = await start(app)
  for (const [password, status, used] of [
    ['wrong', 401, 1],
    ['right', 200, 0],
    ['wrong', 401, 1],
  ] as const) {
    expect((await fetch(`${url}/?password=${password}`)).status).toBe(status)
    await expect.poll(() => ratelimit.getRemaining('all')).toMatchObject({ used })
  }
})
