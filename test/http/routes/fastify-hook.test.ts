import { type ClientHttp2Stream, connect, constants } from 'node:http2'
import { type RateLimitOptions, rateLimit } from 'drizzle-ratelimit/fastify'
import fastify, { type FastifyInstance, type FastifyReply, type RouteHandlerMethod } from 'fastify'
import { afterAll, describe, expect, test, vi } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import type { RatelimitError } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { newPrefix, perHour } from './serve.ts'
import { untilOneCounts } from './settled.ts'

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

describe.each(['failures', 'successes'] as const)('requests of which %s count', (count) => {
  const setup = (options: Partial<RateLimitOptions> = {}) => {
    const limiter = calendarWindow(4, 'month')
    const ratelimit = new Quota({ db: database.db, limiter, prefix: newPrefix(), durable: false })
    return { ratelimit, options: { ratelimit, key: () => 'all', count, ...options } as RateLimitOptions }
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
    await untilOneCounts(database, set.ratelimit)
  })

  test.each(['before the response', 'during the check'])(
    'over HTTP/2, a request whose client goes away %s counts',
    async (when) => {
      const set = setup()
      const app = fastify({ http2: true, forceCloseConnections: true }) as unknown as FastifyInstance
      let stream: ClientHttp2Stream | undefined
      // Node says of such a response that it was closed, and that it has finished.
      const leave = async ({ raw }: FastifyReply) => {
        stream?.close(constants.NGHTTP2_CANCEL)
        await new Promise((resolve) => raw.once('close', resolve))
      }
      const check = rateLimit(set.options)
      app.addHook('onRequest', async (request, reply) => {
        if (when === 'during the check') await leave(reply)
        return check(request, reply)
      })
      app.get('/', async (_request, reply) => {
        await leave(reply)
        return 'hello'
      })
      const client = connect(await serve(app))
      stream = client.request({ ':path': '/' })
      await untilOneCounts(database, set.ratelimit)
      client.destroy()
    },
  )

  test('over HTTP/2, a response is sent and settled as over HTTP/1', async () => {
    const set = setup()
    const app = fastify({ http2: true, forceCloseConnections: true }) as unknown as FastifyInstance
    app.addHook('onRequest', rateLimit(set.options))
    app.get('/:status', async ({ params }, reply) => reply.code(Object(params).status).send())
    const client = connect(await serve(app))
    for (const status of [200, 400]) {
      const stream = client.request({ ':path': `/${status}` }).resume()
      await new Promise((resolve) => stream.once('close', resolve))
    }
    await untilOneCounts(database, set.ratelimit)
    client.destroy()
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
    await untilOneCounts(database, set.ratelimit)
    expect(handler).not.toHaveBeenCalled()
  })
})
