import { DrizzleQueryError } from 'drizzle-orm'
import { pgSchema } from 'drizzle-orm/pg-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Ratelimit, type RatelimitConfig, rateLimitTables } from '../../../src/index.ts'
import { emptyDatabase, type TestDatabase, useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { everyMethod } from './every-method.ts'

let empty: TestDatabase
beforeAll(async () => {
  empty = await emptyDatabase()
})
afterAll(() => empty.close())

// None of these turns up in a stack trace by chance.
const KEY = 'kate@example.com'
const PREFIX = 'the-prefix-of-kate'
const LIMIT = 918_273_645
const WINDOW_MS = 192_837_465
const NOW = Date.UTC(2026, 0, 31)

function ratelimit(
  db: TestDatabase['db'],
  rest: Pick<RatelimitConfig, 'tables'> = {},
  durable = false,
): Ratelimit {
  const limiter = Ratelimit.fixedWindow(LIMIT, WINDOW_MS)
  const config = { db, limiter, prefix: PREFIX, clock: () => new Date(NOW), ...rest }
  return new Ratelimit(durable ? { ...config, durable } : config)
}

describe.each([{ durable: false }, { durable: true }])('without tables, durable: $durable', ({ durable }) => {
  describe.each(everyMethod)('%s', (_, call) => {
    test('names the import and the commands', async () => {
      const error = await errorOf(() => call(ratelimit(empty.db, {}, durable), KEY))
      expect(error).toMatchObject({ name: 'RatelimitError', code: 'MISSING_TABLE', sqlState: '42P01' })
      expect(error.message).toContain("export * from 'drizzle-ratelimit/schema'")
      expect(error.message).toContain('npx drizzle-ratelimit init')
      expect(error.message).toContain('npx drizzle-kit migrate')
    })

    test('has neither key nor prefix nor another parameter in it', async () => {
      const error = await errorOf(() => call(ratelimit(empty.db, {}, durable), KEY))
      const said = [error.message, String(error), error.stack, JSON.stringify(error)].join('\n')
      for (const secret of [KEY, PREFIX, LIMIT, WINDOW_MS, NOW]) expect(said).not.toContain(String(secret))
    })

    test("has the driver's error as its cause, without Drizzle's wrapper", async () => {
      const { cause } = await errorOf(() => call(ratelimit(empty.db, {}, durable), KEY))
      expect(cause).not.toBeInstanceOf(DrizzleQueryError)
      expect(cause).toMatchObject({ code: '42P01', severity: 'ERROR' })
      expect(String(cause)).not.toContain(KEY)
    })
  })
})

test('creates nothing', async () => {
  expect(await empty.rows("select * from pg_tables where schemaname = 'public'")).toEqual([])
})

test.each(everyMethod)('a missing Postgres schema: %s', async (_, call) => {
  const tables = rateLimitTables({ schema: pgSchema('nowhere') })
  const error = await errorOf(() => call(ratelimit(empty.db, { tables }), KEY))
  expect(error).toMatchObject({ code: 'MISSING_TABLE' })
})

test('in a transaction', async () => {
  const limited = empty.db.transaction((tx) => ratelimit(empty.db).limit(KEY, { tx }))
  expect(await errorOf(() => limited)).toMatchObject({ code: 'MISSING_TABLE', sqlState: '42P01' })
})

describe('some of the tables are missing', () => {
  const database = useDatabase()

  test('a table without a column counts as missing', async () => {
    await database.script('alter table rate_limit_ephemeral rename column count to number')
    const error = await errorOf(() => ratelimit(database.db).limit(KEY))
    expect(error).toMatchObject({ code: 'MISSING_TABLE', sqlState: '42703' })
    expect(error.message).toContain('npx drizzle-ratelimit check')
    expect(error.message).not.toContain(KEY)
  })

  test('a limiter finds a table as soon as it is made', async () => {
    await database.script('drop table rate_limit_durable')
    const durable = ratelimit(database.db, {}, true)
    expect(await errorOf(() => durable.limit(KEY))).toMatchObject({ code: 'MISSING_TABLE' })
    await database.script('create table rate_limit_durable (like rate_limit_ephemeral including all)')
    await database.script('alter table rate_limit_durable rename column number to count')
    expect(await durable.limit(KEY)).toMatchObject({ success: true })
  })
})
