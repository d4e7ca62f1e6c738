import fastifyRateLimit from '@fastify/rate-limit'
import { getRequestListener } from '@hono/node-server'
import { initTRPC } from '@trpc/server'
import { createExpressMiddleware } from '@trpc/server/adapters/express'
import { createHTTPHandler } from '@trpc/server/adapters/standalone'
import { betterAuth } from 'better-auth'
import { toNodeHandler } from 'better-auth/node'
import { rateLimitStorage } from 'drizzle-ratelimit/better-auth'
import { rateLimit as onExpress, RateLimitStore } from 'drizzle-ratelimit/express'
import { rateLimitStore } from 'drizzle-ratelimit/fastify'
import { rateLimit as onHono } from 'drizzle-ratelimit/hono'
import { rateLimit as onTrpc } from 'drizzle-ratelimit/trpc'
import express5 from 'express'
import { rateLimit as limiter8 } from 'express-rate-limit'
import { rateLimit as limiter7 } from 'express-rate-limit-v7'
import express4 from 'express-v4'
import fastify from 'fastify'
import { Hono } from 'hono'
import { afterAll, describe, expect, test } from 'vitest'
import type { Database } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { useWarnings } from '../../support/warnings.ts'
import { watch } from '../../support/watch.ts'
import { away, newPrefix, perHour, serve } from './serve.ts'

// What a limiter throws must not end the process of a host that does not catch it.

const database = useDatabase()
useWarnings()

/** Serves an application whose keys are the header `x-user`, and gives its address. */
type Host = (db: Database) => Promise<string>

const userOf = ({ headers }: { headers: Readonly<Record<string, unknown>> }) => String(headers['x-user'])

const middleware =
  (express: typeof express5): Host =>
  (db) => {
    const app = express()
    app.use(onExpress({ ratelimit: perHour(db, 1000), key: userOf, count: 'failures' }))
    app.use((_req, res) => void res.send('hello'))
    return serve(app)
  }

const store =
  (express: typeof express5, rateLimit: typeof limiter8): Host =>
  (db) => {
    const app = express()
    const limit = { limit: 1000, windowMs: 60_000, keyGenerator: userOf, skipSuccessfulRequests: true }
    app.use(rateLimit({ ...limit, store: new RateLimitStore({ db, prefix: newPrefix() }) }))
    app.use((_req, res) => void res.send('hello'))
    return serve(app)
  }

function auth(db: Database): ReturnType<typeof toNodeHandler> {
  return toNodeHandler(
    betterAuth({
      baseURL: 'http://localhost:3000',
      secret: 'a secret that is long enough for a test',
      advanced: { ipAddress: { ipAddressHeaders: ['x-real-ip'] } },
      logger: { disabled: true },
      rateLimit: { enabled: true, customStorage: rateLimitStorage({ db, prefix: newPrefix() }) },
    }),
  )
}

const t = initTRPC.context<{ readonly user: string }>().create()

function procedures(db: Database) {
  const limited = onTrpc<{ readonly user: string }>({
    ratelimit: perHour(db, 1000),
    key: ({ ctx }) => ctx.user,
  })
  const createContext = ({ req }: { req: { headers: Readonly<Record<string, unknown>> } }) => ({
    user: userOf(req),
  })
  return { router: t.router({ hello: t.procedure.use(limited).query(() => 'hello') }), createContext }
}

const HOSTS: Readonly<Record<string, Host>> = {
  'the middleware on Express 4': middleware(express4),
  'the middleware on Express 5': middleware(express5),
  'express-rate-limit 7 on Express 4': store(express4, limiter7),
  'express-rate-limit 8 on Express 5': store(express5, limiter8),
  'Better Auth on Express 4': (db) => serve(express4().all('/api/auth/*', auth(db))),
  'Better Auth on Express 5': (db) => serve(express5().all('/api/auth/*rest', auth(db))),
  'Better Auth on a server of Node': (db) => serve(auth(db)),
  '@fastify/rate-limit': async (db) => {
    const app = fastify()
    const options = { keyGenerator: userOf, store: rateLimitStore({ db, prefix: newPrefix() }) }
    await app.register(fastifyRateLimit, options)
    app.get('/*', async () => 'hello')
    afterAll(() => app.close())
    return app.listen({ host: '127.0.0.1', port: 0 })
  },
  Hono: (db) => {
    const app = new Hono()
    app.use(onHono({ ratelimit: perHour(db, 1000), key: (c) => c.req.header('x-user'), count: 'failures' }))
    app.get('*', (c) => c.text('hello'))
    app.onError((_error, c) => c.text('an error', 500))
    return serve(getRequestListener(app.fetch))
  },
  tRPC: (db) => serve(createHTTPHandler(procedures(db))),
  'tRPC on Express 4': (db) => serve(express4().use(createExpressMiddleware(procedures(db)))),
}

/** What clients send: long paths and keys, and those that cannot be stored. */
const REQUESTS: readonly (readonly [path: string, user: string])[] = [
  ['/hello', 'ada'],
  [`/api/auth/${'x'.repeat(1500)}`, 'ada'],
  ['/api/auth/a%00b', 'ada'],
  ['/api/auth/%ED%A0%80', 'ada'],
  ['/api/auth/%', 'ada'],
  ['/api/auth/get-session', 'x'.repeat(1500)],
  ['/hello', ''],
]

/** A database that nobody can reach after the two statements that charge the first request. */
function awayLater(db: Database): Database {
  let answered = 0
  return watch(db, () => {
    if (answered++ > 1) throw Object.assign(new Error('away'), { code: 'ECONNREFUSED', syscall: 'connect' })
  }).db
}

const ENDINGS = ['unhandledRejection', 'uncaughtException'] as const

/** What would have ended a process that has no listeners, as most have. */
async function unhandledDuring(work: () => Promise<void>): Promise<unknown[]> {
  const unhandled: unknown[] = []
  const note = (error: unknown) => void unhandled.push(error)
  const others = ENDINGS.map((event) => [event, process.rawListeners(event)] as const)
  for (const event of ENDINGS) process.removeAllListeners(event).on(event, note)
  try {
    await work()
  } finally {
    for (const [event, listeners] of others) {
      process.off(event, note)
      for (const listener of listeners) process.on(event, listener as () => void)
    }
  }
  return unhandled
}

describe.each(Object.entries(HOSTS))('%s', (_name, host) => {
  test.each([
    ['is there', (db: Database) => db],
    ['is away', away],
    ['goes away while the first request is served', awayLater],
  ])('answers each request, and no request ends the process, when the database %s', async (_when, reach) => {
    const url = await host(reach(database.db))
    const unanswered: string[] = []
    const unhandled = await unhandledDuring(async () => {
      for (const [path, user] of REQUESTS) {
        const headers = { 'x-user': user, 'x-real-ip': '192.0.2.1' }
        const response = await fetch(url + path, { headers, signal: AbortSignal.timeout(10_000) }).catch(
          () => {},
        )
        if (!response) unanswered.push(path)
        await response?.text()
        // What the host does after its response, such as giving a request back.
        for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate)
      }
    })
    expect(unhandled).toEqual([])
    expect(unanswered).toEqual([])
  })
})
