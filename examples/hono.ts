// A Hono app with limited routes, on a Postgres inside the process: npm run example:hono
import { PGlite } from '@electric-sql/pglite'
import { serve } from '@hono/node-server'
import { getConnInfo } from '@hono/node-server/conninfo'
import { drizzle } from 'drizzle-orm/pglite'
import { Ratelimit, tableSql } from 'drizzle-ratelimit'
import { rateLimit } from 'drizzle-ratelimit/hono'
import { clientKey } from 'drizzle-ratelimit/http'
import { type Context, Hono } from 'hono'

const client = await PGlite.create()
await client.exec(tableSql().join(';'))
const db = drizzle({ client })

// Ten requests a minute from each address. A report costs as much as five.
const requests = new Ratelimit({
  db,
  limiter: Ratelimit.tokenBucket(10, '1m', 10),
  prefix: 'requests',
})
// Three reports an hour on the free plan, a hundred for those who pay.
const reports = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(3, '1h'), prefix: 'reports' })
const PAID = Ratelimit.fixedWindow(100, '1h')

const address = (c: Context) =>
  clientKey(c.req.raw, { address: getConnInfo(c).remote.address, trustedHops: 0 })
const isPaid = (c: Context) => c.req.header('x-plan') === 'paid' // only here: read the plan from your session

const app = new Hono()
app.get('/', rateLimit({ ratelimit: requests, key: address }), (c) =>
  c.json({ hello: 'world', remaining: c.var.rateLimit?.remaining }),
)
app.post(
  '/reports',
  rateLimit({
    limits: [
      { ratelimit: requests, key: address, rate: 5 },
      { ratelimit: reports, key: address, limiter: (c) => (isPaid(c) ? PAID : undefined) },
    ],
  }),
  (c) => c.json({ report: 'made' }, 201),
)

const server = serve(
  { fetch: app.fetch, hostname: '127.0.0.1', port: Number(process.env['PORT'] ?? 3000) },
  ({ port }) => {
    const url = `http://127.0.0.1:${port}`
    console.log(`Listening on ${url}. Try these, several times:
  curl -i ${url}
  curl -i -X POST ${url}/reports
  curl -i -X POST -H 'x-plan: paid' ${url}/reports`)
  },
)

process.once('SIGTERM', () => server.close(() => client.close()))
