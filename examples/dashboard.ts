// The page for operators, on http://127.0.0.1:3000. Its limits have been used for a while.

import { PGlite } from '@electric-sql/pglite'
import { serve } from '@hono/node-server'
import { drizzle } from 'drizzle-orm/pglite'
import { Ratelimit, tableSql } from 'drizzle-ratelimit'
import { calendarWindow } from 'drizzle-ratelimit/calendar'
import { Credits } from 'drizzle-ratelimit/credits'
import { dashboard } from 'drizzle-ratelimit/dashboard'
import { countDenials } from 'drizzle-ratelimit/denials'
import { lockout } from 'drizzle-ratelimit/lockout'
import { Quota, reserveAll } from 'drizzle-ratelimit/quota'
import { Semaphore } from 'drizzle-ratelimit/semaphore'

const client = await PGlite.create()
for (const statement of tableSql()) await client.exec(statement)
const db = drizzle({ client })

// The clock runs through a day, and then through its last hour, so that the charts have something to show.
const [HOUR_MS, MINUTE_MS] = [3_600_000, 60_000]
const hours = Array.from({ length: 19 }, (_, place) => (19 - place) * HOUR_MS)
const minutes = Array.from({ length: 15 }, (_, place) => (14 - place) * 4 * MINUTE_MS)
let ago = 24 * HOUR_MS
const clock = () => new Date(Date.now() - ago)
const counting = { clock, use: [countDenials({ every: 1 })] } as const
const api = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(20, '1h'), prefix: 'requests', ...counting })
const exports = new Ratelimit({
  db,
  limiter: Ratelimit.tokenBucket(2, '1h', 10),
  prefix: 'exports',
  ...counting,
})
const tokens = new Quota({ db, limiter: calendarWindow(50_000, 'month'), prefix: 'tokens' })
const logins = new Ratelimit({ db, limiter: lockout(5, '15m', { block: '1h' }), prefix: 'logins' })
const credits = new Credits({ db, prefix: 'credits' })
const jobs = new Semaphore({ db, prefix: 'jobs', limit: 3, lease: '10m' })

const calls = { 'user:ada': 14, 'user:bob': 23, 'user:eve': 31, 'user:mallory': 58 }
for (ago of [...hours, ...minutes]) {
  const busy = (0.4 + Math.sin((ago / HOUR_MS / 24) * Math.PI)) * (ago < HOUR_MS ? 0.15 : 1)
  for (const [key, times] of Object.entries(calls)) {
    await Promise.all(Array.from({ length: Math.ceil(times * busy) }, () => api.limit(key)))
    await Promise.all(Array.from({ length: (times / 12) * busy }, () => exports.limit(key)))
  }
  // The counts are written in the background.
  await new Promise((resolve) => setTimeout(resolve, 50))
}
await credits.grant('org:1', 1000)
await credits.limit('org:1', { rate: 120 })
await tokens.limit('org:1', { rate: 41_200 })
const report = [
  { ratelimit: tokens, key: 'org:1', rate: 4000 },
  { ratelimit: credits, key: 'org:1', rate: 40 },
] as const
await reserveAll(report, { id: 'report:7', expires: '10m' })
for (let failures = 0; failures < 5; failures++) await logins.limit('user:mallory')
for (const key of ['org:1', 'org:1', 'org:2']) await jobs.acquire(key)

const handler = dashboard({
  limiters: { api, exports, logins, tokens, credits, jobs },
  // Ask your own sessions here. This one lets everybody in who can reach the port.
  authorize: () => ({ id: 'operator', allow: ['reset', 'grant', 'block', 'settle'] }),
  onAction: ({ by, action, key, change }) => console.log(`${by}: ${action} ${key}. ${change}`),
  secret: process.env['DASHBOARD_SECRET'] ?? 'only for this example',
})

const port = Number(process.env['PORT'] ?? 3000)
serve({ fetch: handler, port, hostname: '127.0.0.1' }, (info) => {
  console.log(`http://127.0.0.1:${info.port}`)
})
