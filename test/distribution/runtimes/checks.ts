import { deepEqual, equal, ok, rejects } from 'node:assert/strict'
import { sql } from 'drizzle-orm'
import {
  checkTables,
  type Database,
  limitAll,
  Ratelimit,
  RatelimitError,
  storageSql,
  tableSql,
} from 'drizzle-ratelimit'
import { calendarWindow } from 'drizzle-ratelimit/calendar'
import { Credits } from 'drizzle-ratelimit/credits'
import { rateLimit } from 'drizzle-ratelimit/hono'
import { closePeriods, Quota, reserveAll, spend } from 'drizzle-ratelimit/quota'
import { usage } from 'drizzle-ratelimit/reports'
import { Hono } from 'hono'
import { load, openers } from './drivers.ts'

// What an application does, on the runtime and with the driver that the environment names.

const { RUNTIME = '', DRIVER = '', DATABASE_URL: url = '', PROXY: proxy = '', HTTP: http = '' } = process.env
const open = openers[DRIVER]
if (!open) throw new Error(`There is no driver ${DRIVER}.`)
const { db, hasTransactions, end } = await open({ url, proxy, http })
const run = `${RUNTIME} ${DRIVER}`
const five = Ratelimit.fixedWindow(5, '1h')

function limiter(name: string, options: object = {}): Quota {
  return new Quota({ durable: false, db, limiter: five, prefix: `${run} ${name}`, ...options })
}

/** For drivers that have them. */
function inTransaction(work: (tx: Database) => Promise<void>): Promise<void> {
  return (db as Database & { transaction(work: (tx: Database) => Promise<void>): Promise<void> }).transaction(
    work,
  )
}

/** Bun chooses a content type by the text, but not before it sends the response. */
async function answerOf(app: Hono): Promise<Response> {
  if (!('Bun' in globalThis)) return app.request('/')
  const { serve } = await load('bun')
  const server = serve({ port: 0, fetch: app.fetch })
  try {
    return await fetch(server.url)
  } finally {
    server.stop()
  }
}

type Checks = Readonly<Record<string, (name: string) => Promise<unknown>>>

const CHECKS: Checks = {
  tables: async () => {
    for (const statement of [...tableSql(), ...storageSql()]) await db.execute(sql.raw(statement))
    deepEqual(await checkTables(db), [])
  },
  'a denial': async (name) => {
    const api = limiter(name)
    for (let left = 4; left >= 0; left--) equal((await api.limit('key')).remaining, left)
    const denied = await api.limit('key')
    ok(!denied.success && denied.retryAfter > 3_590_000 && denied.retryAfter <= 3_600_000)
  },
  'fifty at once': async (name) => {
    const answers = await Promise.all(Array.from({ length: 50 }, () => limiter(name).limit('key')))
    equal(answers.filter(({ success }) => success).length, 5)
  },
  'fifty of one limiter': async (name) => {
    const api = limiter(name)
    const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => api.limit(`key ${i % 5}`)))
    equal(answers.filter(({ success }) => success).length, 25)
  },
  'a refund': async (name) => {
    const api = limiter(name)
    await api.limit('key', { rate: 5 })
    await api.limit('key', { rate: -2 })
    equal((await api.getRemaining('key')).remaining, 2)
  },
  'what there is': async (name) => {
    const part = await limiter(name).limit('key', { rate: 9, atLeast: 1 })
    equal(part.success && part.granted, 5)
  },
  'a token bucket': async (name) => {
    const bucket = limiter(name, { limiter: Ratelimit.tokenBucket(5, '10s', 20) })
    equal((await bucket.limit('key', { rate: 20 })).remaining, 0)
    ok(!(await bucket.limit('key')).success)
  },
  'a sliding window': async (name) => {
    equal((await limiter(name, { limiter: Ratelimit.slidingWindow(5, '1h') }).limit('key')).remaining, 4)
  },
  gcra: async (name) => {
    equal(
      (await limiter(name, { limiter: Ratelimit.gcra(100, '1h', { burst: 3 }) }).limit('key')).remaining,
      2,
    )
  },
  'a calendar month': async (name) => {
    const month = calendarWindow(1000, 'month', { timeZone: 'Europe/Berlin' })
    const { remaining, reset } = await limiter(name, { limiter: month, durable: true }).limit('key')
    equal(remaining, 999)
    ok(reset > Date.now())
  },
  'prepaid credits': async (name) => {
    const credits = new Credits({ db, prefix: `${run} ${name}` })
    await credits.grant('key', 10)
    equal((await credits.limit('key', { rate: 4 })).remaining, 6)
  },
  'a reservation': async (name) => {
    const api = limiter(name)
    const reserved = await api.reserve('key', { rate: 4 })
    if (!reserved.success) throw new Error('denied')
    await reserved.commit(1)
    equal((await api.getRemaining('key')).used, 1)
  },
  'a reservation by its name': async (name) => {
    const api = limiter(name, { hashKeys: 'sixteen or longer' })
    await api.reserve('key', { rate: 4, id: 'job', expires: '1h' })
    await api.settle({ key: 'key', id: 'job' }, 2)
    equal((await api.getRemaining('key')).used, 2)
  },
  'many looks': async (name) => {
    deepEqual(
      (await limiter(name).getRemainingAll(['a', 'b'])).map(({ used }) => used),
      [0, 0],
    )
  },
  'a wait': async (name) => {
    const quick = limiter(name, { limiter: Ratelimit.tokenBucket(1, '100ms', 1) })
    await quick.limit('key')
    ok((await quick.blockUntilReady('key', '10s')).success)
  },
  'a reset and a cleanup': async (name) => {
    const api = limiter(name)
    await api.limit('key')
    await api.resetUsedTokens('key')
    equal((await api.getRemaining('key')).used, 0)
    equal(await api.cleanup(), 0)
  },
  'a list for people': async (name) => {
    const api = limiter(name, { durable: true })
    await api.limit('key', { rate: 3 })
    const [first] = await usage({ db, prefix: api.prefix, limiter: five, durable: true })
    equal(first?.used, 3)
  },
  'several limits': async (name) => {
    const [one, other] = [limiter(`${name} 1`), limiter(`${name} 2`)]
    await other.limit('key', { rate: 5 })
    const all = () => limitAll([one, other].map((ratelimit) => ({ ratelimit, key: 'key' })))
    const used = async () =>
      [await one.getRemaining('key'), await other.getRemaining('key')].map((is) => is.used)
    equal((await all()).success, false)
    deepEqual(await used(), [0, 5])
    await other.limit('key', { rate: -2 })
    const answers = await Promise.all([all(), all(), all()])
    equal(answers.filter(({ success }) => success).length, 2)
    deepEqual(await used(), [2, 5])
  },
  'several reservations': async (name) => {
    const requests = [1, 2].map((place) => ({ ratelimit: limiter(`${name} ${place}`), key: 'key', rate: 4 }))
    const reserved = await reserveAll(requests)
    if (!reserved.success) throw new Error('denied')
    await reserved.commit([1, 2])
    const looks = await Promise.all(requests.map(({ ratelimit }) => ratelimit.getRemaining('key')))
    deepEqual(
      looks.map(({ used }) => used),
      [1, 2],
    )
  },
  'a cost over several limits': async (name) => {
    const sources = [1, 2].map((place) => ({ ratelimit: limiter(`${name} ${place}`), key: 'key' }))
    const spent = await spend(sources, { rate: 7 })
    deepEqual(spent.success && spent.granted, [5, 2])
  },
  'an error': async (name) => {
    const failing = limiter(name).limit('\0')
    await rejects(failing, (error) => error instanceof RatelimitError && error.code === 'INVALID_KEY')
  },
  'a route of Hono': async (name) => {
    const app = new Hono()
    app.use(rateLimit({ ratelimit: limiter(name), key: () => 'key' }))
    app.get('/', (c) => c.text('hello'))
    const response = await answerOf(app)
    equal(response.headers.get('content-type')?.toLowerCase().replace(' ', ''), 'text/plain;charset=utf-8')
    ok(response.headers.has('ratelimit'))
  },
}

const IN_TRANSACTIONS: Checks = {
  'a rollback': async (name) => {
    const api = limiter(name)
    const rolledBack = inTransaction(async (tx) => {
      equal((await api.limit('key', { tx })).remaining, 4)
      throw new Error('rolled back')
    })
    await rejects(rolledBack, /rolled back/)
    equal((await api.getRemaining('key')).used, 0)
  },
  'periods that are closed': async (name) => {
    await inTransaction(async (tx) => {
      deepEqual(
        await closePeriods({ db, prefix: `${run} ${name}`, limiter: five, durable: true }, { tx }),
        [],
      )
    })
  },
}

const checks = Object.entries({ ...CHECKS, ...(hasTransactions ? IN_TRANSACTIONS : {}) })
let failures = 0
for (const [name, check] of checks) {
  try {
    await check(name)
  } catch (error) {
    failures++
    console.error(`${run}: ${name}:`, error)
  }
}
await end()
console.log(`${run}: ${checks.length - failures} of ${checks.length} checks`)
process.exit(failures === 0 ? 0 : 1)
