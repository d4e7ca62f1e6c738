import { Cache } from 'drizzle-orm/cache/core'
import { withReplicas } from 'drizzle-orm/pg-core'
import { drizzle } from 'drizzle-orm/pg-proxy'
import { ledger } from 'drizzle-ratelimit/ledger'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Database, limitAll, Ratelimit, rateLimitEphemeral } from '../../../src/index.ts'
import { Quota, reserveAll, settle, spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { worksOn } from './works-on.ts'

const database = useDatabase()

test('every method works without interactive transactions, as on neon-http', async () => {
  const sent: string[] = []
  const db = drizzle(async (query, params, method) => {
    sent.push(query)
    const rows = await database.rows(query, params)
    return { rows: method === 'execute' ? rows : rows.map((row) => Object.values(row)) }
  })
  await worksOn(db, 'proxy', { transactions: false })
  expect(sent.filter((query) => /^(begin|commit|set)/i.test(query))).toEqual([])
  const ratelimit = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(3, '1h'), prefix: 'proxy' })
  const requests = ['a', 'b'].map((key) => ({ ratelimit, key }))
  for (const call of [
    () => limitAll(requests),
    () => reserveAll(requests),
    () => spend(requests, { rate: 2 }),
  ]) {
    expect(await call()).toMatchObject({ success: true })
  }
  expect(await ratelimit.getRemaining('a')).toMatchObject({ used: 3 })
  expect(await ratelimit.getRemaining('b')).toMatchObject({ used: 3 })
  const others = ['c', 'd'].map((key) => ({ ratelimit, key }))
  await spend(others, { rate: 2, id: 'job', expires: '1h' })
  expect(await settle(others, 'job', { actual: 5 })).toMatchObject({ granted: [3, 2] })
})

test('estimates with grace are settled without transactions until the last millisecond of a period, and after it', async () => {
  const db = drizzle(async (query, values, method) => {
    const rows = await database.rows(query, values)
    return { rows: method === 'execute' ? rows : rows.map((row) => Object.values(row)) }
  })
  const end = Date.UTC(2026, 1, 1)
  const clock = new TestClock(end - 1)
  const [first, second] = ['one', 'two'].map((prefix) => {
    const common = { db, limiter: calendarWindow(100, 'month'), prefix, clock: clock.now } as const
    return { ratelimit: new Quota({ ...common, durable: false, keepEnded: true, grace: '1h' }), key: 'key' }
  }) as [{ ratelimit: Quota; key: string }, { ratelimit: Quota; key: string }]
  const months = [first, second]
  const naming = { id: 'job', expires: '1d' } as const
  const [listed, named] = [await reserveAll(months), await reserveAll(months, naming)]
  const spent = await spend(months, { rate: 4 })
  const one = await first.ratelimit.reserve('key', { rate: 2, id: 'one', expires: '1d' })
  const late = await first.ratelimit.reserve('key', { rate: 2 })
  const [less, more] = [await reserveAll(months), await reserveAll(months)]
  if (!(listed.success && named.success && spent.success && one.success)) throw new Error('denied')
  if (!(late.success && less.success && more.success)) throw new Error('denied')
  expect(await listed.commit([0, 2])).toMatchObject([{ returned: 1 }, { success: true }])
  expect(await named.commit([2, 0])).toMatchObject([{ success: true }, { returned: 1 }])
  expect(await spent.commit(3)).toMatchObject({ granted: [3, 0] })
  expect(await one.commit(1)).toMatchObject({ returned: 1 })
  clock.ms = end
  expect(await late.commit(1)).toMatchObject({ returned: 1 })
  clock.advance(3_600_000)
  expect(await less.commit([0, 0])).toMatchObject([{ returned: 0 }, { returned: 0 }])
  expect(await more.commit([3, 0])).toMatchObject([{ remaining: 98 }, { returned: 0 }])
})

test('an answer without a row for the key is an error at once', async () => {
  const sent: string[] = []
  const db = drizzle(async (query) => {
    sent.push(query)
    return { rows: [] }
  })
  const limiter = Ratelimit.fixedWindow(3, '1h')
  const ratelimit = new Ratelimit({ db, limiter, prefix: 'no rows', cleanupProbability: 0 })
  await expect(ratelimit.getRemaining('key')).rejects.toMatchObject({ code: 'DATABASE' })
  await expect(ratelimit.limit('key')).rejects.toMatchObject({ code: 'DATABASE' })
  // The look; the take, the make, and both again for a row that may be held.
  expect(sent.length).toBeLessThanOrEqual(1 + 4)
})

test('a query cache of strategy all does not answer for the database', async () => {
  class All extends Cache {
    readonly #kept = new Map<string, unknown[]>()
    puts = 0
    override strategy(): 'all' {
      return 'all'
    }
    override async get(key: string): Promise<unknown[] | undefined> {
      return this.#kept.get(key)
    }
    override async put(key: string, response: unknown): Promise<void> {
      this.puts++
      this.#kept.set(key, response as unknown[])
    }
    override async onMutate(): Promise<void> {}
  }
  const cache = new All()
  const db = database.withCache(cache)
  await worksOn(db, 'cache')
  await db.transaction((tx) => worksOn(tx as Database, 'cache in a transaction'))
  expect(cache.puts).toBe(0)
  // The cache works: the test would see a cached answer.
  await db.select().from(rateLimitEphemeral)
  expect(cache.puts).toBe(1)
})

test('withReplicas: a check goes to the primary', async () => {
  const replica = drizzle(() => Promise.reject(new Error('a replica cannot write'))) as never
  await worksOn(withReplicas(database.db, [replica]), 'replicas')
})

test('a driver without transactions is known by what it is, and not by what it says', async () => {
  const db = drizzle(async () => ({ rows: [] }))
  Object.assign(Object(db._).session, {
    transaction: async () => {
      throw new Error('Method not implemented.')
    },
  })
  const limiter = Ratelimit.fixedWindow(3, '1h')
  const ratelimit = new Ratelimit({
    db,
    limiter,
    prefix: 'none',
    durable: true,
    use: [ledger(async () => {})],
  })
  await expect(ratelimit.limit('key')).rejects.toMatchObject({ code: 'INVALID_OPTION' })
})
