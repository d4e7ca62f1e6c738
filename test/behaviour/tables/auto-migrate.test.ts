import { pgSchema } from 'drizzle-orm/pg-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import {
  checkTables,
  type Database,
  type RateLimitTables,
  Ratelimit,
  rateLimitTables,
} from '../../../src/index.ts'
import { emptyDatabase, type TestDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'
import { everyMethod } from './every-method.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await emptyDatabase()
})
afterAll(() => database.close())
beforeEach(() =>
  database.script('drop schema public cascade; create schema public; drop schema if exists limits cascade'),
)
afterEach(() => void vi.unstubAllEnvs())

const limiter = Ratelimit.fixedWindow(100, '1m')
const DDL = /^\s*do\b|\b(create|alter|drop)\b/i

function migrating(db: Database, tables?: RateLimitTables): Ratelimit {
  const config = { db, limiter, prefix: 'migrating', autoMigrate: true, cleanupProbability: 0 }
  return new Ratelimit(tables ? { ...config, tables } : config)
}

async function tablesThere(): Promise<string[]> {
  const rows = await database.rows(
    "select tablename from pg_tables where schemaname in ('public', 'limits') order by tablename",
  )
  return rows.map(({ tablename }) => String(tablename))
}

describe('creates missing tables', () => {
  test.each(everyMethod)('on the first use of %s', async (_, call) => {
    // The database object is new each time, as the tables are.
    await call(migrating(watch(database.db).db), 'key')
    expect(await checkTables(database.db)).toEqual([])
  })

  test('with names of their own, and their Postgres schema', async () => {
    const tables = rateLimitTables({ schema: pgSchema('limits'), ephemeral: 'a', durable: 'b' })
    const ratelimit = migrating(watch(database.db).db, tables)
    expect(await ratelimit.limit('key')).toMatchObject({ success: true, remaining: 99 })
    expect(await checkTables(database.db, tables)).toEqual([])
    expect(await tablesThere()).toEqual(['a', 'b'])
  })

  test('the one that is missing, and leaves the other as it is', async () => {
    await database.script(`
      create table rate_limit_durable (prefix text, key text, note text);
      insert into rate_limit_durable values ('the', 'only', 'row')`)
    await migrating(watch(database.db).db).limit('key')
    expect(await tablesThere()).toEqual(['rate_limit_durable', 'rate_limit_ephemeral'])
    expect(await database.rows('select * from rate_limit_durable')).toEqual([
      { prefix: 'the', key: 'only', note: 'row' },
    ])
  })
})

describe('its cost if the tables exist', () => {
  beforeEach(async () => {
    await migrating(watch(database.db).db).limit('key')
  })

  test('no DDL, one look for the first calls at once, and none after them', async () => {
    const keys = ['one', 'two', 'three']
    const rows = migrating(watch(database.db).db)
    for (const key of keys) await rows.limit(key)
    const { db, statements } = watch(database.db)
    // A key for each: a check of a row that another check holds would be asked again.
    const several = keys.map((key) => ({ key, ratelimit: migrating(db) }))
    await Promise.all(several.map(({ key, ratelimit }) => ratelimit.limit(key)))
    for (const { key, ratelimit } of several) await ratelimit.getRemaining(key)
    expect(statements).toHaveLength(3 + 3 + 3)
    expect(statements.filter((text) => DDL.test(text))).toEqual([])
  })

  test('without autoMigrate, not even that', async () => {
    const { db, statements } = watch(database.db)
    await new Ratelimit({ db, limiter, prefix: 'trusting', cleanupProbability: 0 }).limit('key')
    expect(statements).toHaveLength(2)
  })
})

describe('a first attempt that fails', () => {
  test('is tried again by the next call', async () => {
    // A type has the table's name, so that it cannot be created, but is not the table.
    await database.script('create type rate_limit_durable as enum ()')
    const ratelimit = migrating(watch(database.db).db)
    const failed = await Promise.allSettled([ratelimit.limit('key'), ratelimit.getRemaining('key')])
    for (const each of failed) {
      expect(each).toMatchObject({ status: 'rejected', reason: { code: 'DATABASE', sqlState: '42710' } })
    }
    expect(await tablesThere()).toEqual([])

    await database.script('drop type rate_limit_durable')
    expect(await ratelimit.limit('key')).toMatchObject({ success: true })
    expect(await checkTables(database.db)).toEqual([])
  })
})

describe('PG_RATELIMIT_DISABLE_AUTO_MIGRATE', () => {
  test.each(everyMethod)('true forbids it: %s', async (_, call) => {
    vi.stubEnv('PG_RATELIMIT_DISABLE_AUTO_MIGRATE', 'true')
    const { db, statements } = watch(database.db)
    await expect(call(migrating(db), 'key')).rejects.toMatchObject({
      name: 'RatelimitError',
      code: 'MISSING_TABLE',
    })
    expect(statements.filter((text) => DDL.test(text))).toEqual([])
    expect(await tablesThere()).toEqual([])
  })

  test.each(['', 'false'])('%j does not forbid it', async (value) => {
    vi.stubEnv('PG_RATELIMIT_DISABLE_AUTO_MIGRATE', value)
    expect(await migrating(watch(database.db).db).limit('key')).toMatchObject({ success: true })
  })
})

describe("in a caller's transaction there is no DDL", () => {
  const missing = { name: 'RatelimitError', code: 'MISSING_TABLE', sqlState: '42P01' }

  test.each([
    ['limit', (ratelimit: Ratelimit, tx: Database): Promise<unknown> => ratelimit.limit('key', { tx })],
    [
      'getRemaining',
      (ratelimit: Ratelimit, tx: Database): Promise<unknown> => ratelimit.getRemaining('key', { tx }),
    ],
    [
      'resetUsedTokens',
      (ratelimit: Ratelimit, tx: Database): Promise<unknown> => ratelimit.resetUsedTokens('key', { tx }),
    ],
  ])('%s with tx', async (_, call) => {
    const { db, statements } = watch(database.db)
    const joined = database.db.transaction((tx) => call(migrating(db), tx))
    await expect(joined).rejects.toMatchObject(missing)
    expect(statements).toEqual([])
    expect(await tablesThere()).toEqual([])
  })

  test.each(everyMethod.filter(([name]) => name !== 'blockUntilReady'))(
    '%s of a limiter that is built on one',
    async (_, call) => {
      const joined = database.db.transaction((tx) => call(migrating(tx), 'key'))
      await expect(joined).rejects.toMatchObject({ name: 'RatelimitError', code: 'MISSING_TABLE' })
      expect(await tablesThere()).toEqual([])
    },
  )
})
