import { Cache } from 'drizzle-orm/cache/core'
import { withReplicas } from 'drizzle-orm/pg-core'
import { drizzle } from 'drizzle-orm/pg-proxy'
import { expect, test } from 'vitest'
import { type Database, Ratelimit, rateLimitEphemeral } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'

const database = useDatabase()

/** Each method once, on the given database. */
async function worksOn(db: Database, prefix: string): Promise<void> {
  const limiter = Ratelimit.fixedWindow(3, '1h')
  const ratelimit = new Ratelimit({ db, limiter, prefix, durable: true, cleanupProbability: 1 })
  const answers = []
  for (let i = 0; i < 4; i++) answers.push(await ratelimit.limit('key'))
  expect(answers.map(({ success, remaining }) => [success, remaining])).toEqual([
    [true, 2],
    [true, 1],
    [true, 0],
    [false, 0],
  ])
  expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 0 })
  await ratelimit.resetUsedTokens('key')
  expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 3 })
  const many = await Promise.all(['key', 'other', 'key'].map((key) => ratelimit.limit(key)))
  expect(many.map(({ remaining }) => remaining)).toEqual([2, 2, 1])
  expect(await ratelimit.cleanup()).toBe(0)
}

/** A database whose driver gives the columns of its answers other names. */
function renaming(rename: (name: string) => string): Database {
  return drizzle(async (query, params) => {
    const renamed = (row: object) => Object.entries(row).map(([name, value]) => [rename(name), value])
    const rows = await database.rows(query, params)
    return { rows: rows.map((row) => Object.fromEntries(renamed(row))) }
  })
}

test('on drivers that rename columns as postgres.camel and the CamelCasePlugin do', async () => {
  const db = renaming((name) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()))
  await worksOn(db, 'camel')
})

test.each([
  ['one word', (name: string) => name.toUpperCase()],
  ['several words', (name: string) => name.replaceAll('_', '-')],
])('no number is made up where a driver renames %s in another way', async (name, rename) => {
  const limiter = Ratelimit.fixedWindow(3, '1h')
  const ratelimit = new Ratelimit({ db: renaming(rename), limiter, prefix: name, cleanupProbability: 0 })
  await expect(ratelimit.limit('key')).rejects.toMatchObject({ code: 'DATABASE', sqlState: undefined })
})

test('where there is no interactive transaction, as on neon-http: every method but those of several limits', async () => {
  const sent: string[] = []
  const db = drizzle(async (query, params, method) => {
    sent.push(query)
    const rows = await database.rows(query, params)
    return { rows: method === 'execute' ? rows : rows.map((row) => Object.values(row)) }
  })
  await worksOn(db, 'proxy')
  expect(sent.filter((query) => /^(begin|commit|set)/i.test(query))).toEqual([])
  const ratelimit = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(3, '1h'), prefix: 'proxy' })
  const before = sent.length
  const requests = [{ ratelimit, key: 'key' }]
  for (const call of [
    () => Ratelimit.limitAll(requests),
    () => Ratelimit.reserveAll(requests),
    () => Ratelimit.spend(requests, { rate: 1 }),
  ]) {
    await expect(call()).rejects.toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringMatching(/^Several limits/),
    })
  }
  expect(sent).toHaveLength(before)
})

test('an answer without a row for the key, which no Postgres gives, is an error at once', async () => {
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
