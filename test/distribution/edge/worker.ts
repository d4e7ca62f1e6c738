import { env, waitUntil } from 'cloudflare:workers'
import { drizzle as drizzleNodePostgres } from 'drizzle-orm/node-postgres'
import { drizzle as drizzleProxy } from 'drizzle-orm/pg-proxy'
import { type Database, type LimitResult, limitAll, Ratelimit } from 'drizzle-ratelimit'
import { rateLimit } from 'drizzle-ratelimit/hono'
import { clientKey } from 'drizzle-ratelimit/http'
import { Quota } from 'drizzle-ratelimit/quota'
import { Hono } from 'hono'
import pg from 'pg'

// A Worker whose requests are limited, each path in another way.

const limiter = Ratelimit.fixedWindow(20, '1h')

/** Each statement is a request of its own, so that all requests of the Worker may share the database. */
function overHttp(database: string): Database {
  return drizzleProxy(async (sql, params) => {
    const response = await fetch(new URL(database, env.HTTP_DATABASE), {
      method: 'POST',
      body: JSON.stringify({ sql, params }),
    })
    const answer = await response.json()
    if (!response.ok) throw Object.assign(new Error('The database refused.'), answer)
    return answer as { rows: unknown[] }
  })
}

/** A socket belongs to the request that opened it, and so does every limiter that uses it. */
async function overTcp(check: (db: Database) => Promise<LimitResult[]>): Promise<LimitResult[]> {
  const client = new pg.Client(env.HYPERDRIVE.connectionString)
  await client.connect()
  try {
    return await check(drizzleNodePostgres({ client }))
  } finally {
    waitUntil(client.end())
  }
}

const common = { db: overHttp('/migrated'), limiter, cleanupProbability: 0 }
const sweeping = { ...common, cleanupProbability: 1 }
const http: Readonly<Record<string, Ratelimit>> = {
  '/http': new Ratelimit({ ...common, prefix: 'http' }),
  '/coalesced': new Ratelimit({ ...common, prefix: 'coalesced', coalesce: true }),
  '/first': new Ratelimit({ ...common, db: overHttp('/empty'), prefix: 'first', autoMigrate: true }),
  '/slow': new Ratelimit({ ...common, db: overHttp('/slow'), prefix: 'slow', timeout: 50, onError: 'allow' }),
  '/kept sweep': new Ratelimit({ ...sweeping, prefix: 'kept sweep', waitUntil }),
  '/cut sweep': new Ratelimit({ ...sweeping, prefix: 'cut sweep' }),
}

async function answersTo(path: string, key: string): Promise<LimitResult[]> {
  if (path === '/tcp') {
    return overTcp(async (db) => [await new Ratelimit({ db, limiter, prefix: 'tcp' }).limit(key)])
  }
  if (path === '/all') {
    return overTcp(async (db) => {
      const perUser = new Ratelimit({ db, limiter, prefix: 'per user' })
      const inAll = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(30, '1h'), prefix: 'in all' })
      const requests = [
        { ratelimit: perUser, key },
        { ratelimit: inAll, key: 'all' },
      ]
      return [...(await limitAll(requests)).results]
    })
  }
  if (path === '/settled') {
    const quota = new Quota({ ...common, prefix: 'settled', durable: false })
    const id = crypto.randomUUID()
    const reserved = await quota.reserve(key, { rate: 20, id, expires: '1h' })
    return [reserved.success ? await quota.settle({ key, id }, 1) : reserved]
  }
  const ratelimit = http[path]
  return ratelimit ? [await ratelimit.limit(key)] : []
}

const app = new Hono()
const perAddress = new Ratelimit({
  ...{ db: overHttp('/slowly'), cleanupProbability: 0 },
  limiter: Ratelimit.fixedWindow(2, '1h'),
  prefix: 'hono',
})
app.use(
  '/hono/:status',
  rateLimit({
    ratelimit: perAddress,
    key: (c) => clientKey(c.req.raw, { address: c.req.query('key') }),
    count: 'failures',
  }),
)
app.get('/hono/:status', (c) => c.json(c.var.rateLimit, c.req.param('status') === '200' ? 200 : 401))

export default {
  async fetch(request: Request): Promise<Response> {
    const { pathname, searchParams } = new URL(request.url)
    if (pathname.startsWith('/hono/')) return app.fetch(request)
    const answers = await answersTo(decodeURIComponent(pathname), searchParams.get('key') ?? '')
    return Response.json(answers, { status: answers.every(({ success }) => success) ? 200 : 429 })
  },
}
