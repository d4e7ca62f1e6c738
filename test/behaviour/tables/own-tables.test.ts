import { pgSchema } from 'drizzle-orm/pg-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type RateLimitTables, Ratelimit, rateLimitTables } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { emptyDatabase, type TestDatabase } from '../../support/databases.ts'
import { examples } from '../../support/limits.ts'
import { undone } from '../../support/undone.ts'

const own = rateLimitTables({ schema: pgSchema('limits'), ephemeral: 'a', durable: 'b' })

let database: TestDatabase
beforeAll(async () => {
  database = await emptyDatabase()
  await create(own)
})
afterAll(() => database.close())

async function create(tables: RateLimitTables): Promise<void> {
  const limiter = Ratelimit.fixedWindow(1, '1m')
  await new Ratelimit({ db: database.db, limiter, prefix: 'creates', tables, autoMigrate: true }).cleanup()
}

async function rowsIn(table: string, prefix: string): Promise<unknown[]> {
  const rows = await database.rows(`select key from ${table} where prefix = '${prefix}' order by key`)
  return rows.map(({ key }) => key)
}

describe.each([
  { durable: false, mine: 'limits.a', other: 'limits.b' },
  { durable: true, mine: 'limits.b', other: 'limits.a' },
])('durable: $durable', ({ durable, mine, other }) => {
  describe.each(examples)('$name', ({ name: prefix, of }) => {
    const { limiter } = of(3, '1m')
    const clock = new TestClock()
    // The tests go on from each other: one limiter's life.
    let ratelimit: Ratelimit
    beforeAll(() => {
      const options = {
        db: database.db,
        limiter,
        prefix,
        tables: own,
        clock: clock.now,
        cleanupProbability: 0,
      }
      ratelimit = new Ratelimit(durable ? { ...options, durable } : options)
    })

    test('limit, of one key and of many at once, writes to its table only', async () => {
      expect(await ratelimit.limit('key', { rate: 2 })).toMatchObject({ success: true, remaining: 1 })
      const many = await Promise.all(['key', 'key 2', 'key 3'].map((key) => ratelimit.limit(key)))
      expect(many).toMatchObject([{ remaining: 0 }, { remaining: 2 }, { remaining: 2 }])
      expect(await ratelimit.limit('key')).toMatchObject({ success: false })
      expect(await rowsIn(mine, prefix)).toEqual(['key', 'key 2', 'key 3'])
      expect(await rowsIn(other, prefix)).toEqual([])
    })

    test('limit in a transaction that rolls back', async () => {
      await undone(database.db, async (tx) => {
        expect(await ratelimit.limit('key 2', { tx })).toMatchObject({ remaining: 1 })
      })
    })

    test('getRemaining', async () => {
      expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 0 })
      expect(await ratelimit.getRemaining('key 2')).toMatchObject({ remaining: 2 })
    })

    test('blockUntilReady', async () => {
      expect(await ratelimit.blockUntilReady('key 3', '1s')).toMatchObject({ success: true, remaining: 1 })
      expect(await ratelimit.blockUntilReady('key', '1s')).toMatchObject({ success: false })
    })

    test('resetUsedTokens', async () => {
      await ratelimit.resetUsedTokens('key')
      expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 3 })
    })

    test('cleanup', async () => {
      // Everything has come back, and its rows have expired.
      clock.advance(60 * 86_400_000)
      expect(await ratelimit.cleanup()).toBe(2)
      expect(await rowsIn(mine, prefix)).toEqual([])
    })
  })
})

test('synchronousCommit', async () => {
  const config = { db: database.db, limiter: Ratelimit.fixedWindow(3, '1m'), prefix: 'flushed', tables: own }
  const ratelimit = new Ratelimit({ ...config, durable: true, synchronousCommit: true })
  expect(await ratelimit.limit('key')).toMatchObject({ remaining: 2 })
  expect(await rowsIn('limits.b', 'flushed')).toEqual(['key'])
})

test('tables of the same names in two Postgres schemas are two', async () => {
  const limiterOn = async (schema: string) => {
    const tables = rateLimitTables({ schema: pgSchema(schema) })
    await create(tables)
    return new Ratelimit({ db: database.db, limiter: Ratelimit.fixedWindow(3, '1m'), prefix: 'two', tables })
  }
  const [one, two] = [await limiterOn('one'), await limiterOn('two')]
  await one.limit('key', { rate: 3 })
  expect(await two.limit('key')).toMatchObject({ success: true, remaining: 2 })
  expect(await one.limit('key')).toMatchObject({ success: false })
})

test('names are quoted, whatever is in them', async () => {
  const schema = pgSchema('The "limits"; it\'s')
  const tables = rateLimitTables({ schema, ephemeral: 'E "e" o\'clock', durable: 'select' })
  await create(tables)
  for (const durable of [false, true] as const) {
    const config = { db: database.db, limiter: Ratelimit.fixedWindow(3, '1m'), prefix: 'quoted', tables }
    const ratelimit = new Ratelimit(durable ? { ...config, durable } : config)
    expect(await ratelimit.limit('key')).toMatchObject({ remaining: 2 })
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 2 })
    await ratelimit.resetUsedTokens('key')
    expect(await ratelimit.cleanup()).toBe(0)
  }
})

test('the shipped tables are not made as well', async () => {
  expect(await database.rows("select * from pg_tables where schemaname = 'public'")).toEqual([])
})
