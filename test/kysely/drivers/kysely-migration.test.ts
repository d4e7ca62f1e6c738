import { pgSchema } from 'drizzle-orm/pg-core'
import { fromKysely, type RateLimitDatabase, rateLimitMigration } from 'drizzle-ratelimit/kysely'
import { type Kysely, type Migration, Migrator } from 'kysely'
import { describe, expect, onTestFinished, test } from 'vitest'
import { checkTables, Ratelimit, rateLimitTables, storageSql } from '../../../src/index.ts'
import { catalogsOf } from '../../support/catalogs.ts'
import { emptyDatabase, migrate, type TestDatabase } from '../../support/databases.ts'
import { kyselyOf } from '../../support/kysely.ts'

async function empty(): Promise<TestDatabase> {
  const database = await emptyDatabase()
  onTestFinished(() => database.close())
  return database
}

function migratorOf<T>(db: Kysely<T>, migration: Migration): Migrator {
  return new Migrator({ db, provider: { getMigrations: async () => ({ '1_rate_limit': migration }) } })
}

/** Without the tables in which Kysely keeps its migrations. */
async function tablesOf(database: TestDatabase, schema = 'public'): Promise<string[]> {
  return (await catalogsOf(database, schema)).filter((line) => !line.includes('kysely_migration'))
}

describe('the migration', () => {
  test('makes the same tables as the migrations of drizzle-kit, and drops them', async () => {
    const [database, expected] = [await empty(), await empty()]
    await migrate(expected)
    const migrator = migratorOf(kyselyOf(database), rateLimitMigration())
    expect(await migrator.migrateToLatest()).toMatchObject({ results: [{ status: 'Success' }] })
    expect(await tablesOf(database)).toEqual(await catalogsOf(expected))
    expect(await migrator.migrateDown()).toMatchObject({ results: [{ status: 'Success' }] })
    expect(await tablesOf(database)).toEqual([])
  })

  test('leaves the ephemeral table to be logged by a statement after it', async () => {
    const database = await empty()
    await migratorOf(kyselyOf(database), rateLimitMigration()).migrateToLatest()
    const tables = rateLimitTables()
    for (const statement of storageSql(tables, { logged: true })) await database.script(statement)
    expect(await checkTables(database.db, tables, { logged: true })).toEqual([])
  })

  test('for tables of your own, in a Postgres schema that may exist', async () => {
    const database = await empty()
    const tables = rateLimitTables({ schema: pgSchema('limits'), ephemeral: 'quick', durable: 'slow' })
    const migrator = migratorOf(kyselyOf(database), rateLimitMigration(tables))
    for (let i = 0; i < 2; i++) {
      expect(await migrator.migrateToLatest()).toMatchObject({ results: [{ status: 'Success' }] })
      expect(await checkTables(database.db, tables)).toEqual([])
      expect(await migrator.migrateDown()).toMatchObject({ results: [{ status: 'Success' }] })
      expect(await tablesOf(database, 'limits')).toEqual([])
    }
  })
})

interface Own extends RateLimitDatabase<'limits.quick', 'limits.slow'> {
  jobs: { name: string }
}

test('the types are those of the rows', async () => {
  const database = await empty()
  await migrate(database)
  const kysely = kyselyOf<RateLimitDatabase>(database)
  const bucket = { limiter: Ratelimit.tokenBucket(1, '1h', 5), prefix: 'bucket' }
  await new Ratelimit({ db: fromKysely(kysely), ...bucket }).limit('key', { rate: 2 })
  const row = await kysely.selectFrom('rate_limit_ephemeral').selectAll().executeTakeFirstOrThrow()
  const { prefix, key, count, tokens, last_refill, expires_at } = row
  expect({ prefix, key, count, tokens }).toEqual({ prefix: 'bucket', key: 'key', count: null, tokens: 3 })
  for (const time of [last_refill, expires_at]) expect(Number.isNaN(Date.parse(String(time)))).toBe(false)

  const own = kyselyOf<Own>(database)
  // @ts-expect-error there is no such table among those of one's own
  expect(() => own.selectFrom('rate_limit_ephemeral').compile()).not.toThrow()
  expect(own.selectFrom('limits.slow').select('tokens').compile().sql).toBe(
    'select "tokens" from "limits"."slow"',
  )
  // @ts-expect-error there is no such column
  expect(() => own.selectFrom('limits.slow').select('coins').compile()).not.toThrow()
  // @ts-expect-error a row needs an expires_at
  expect(() => own.insertInto('limits.slow').values({ prefix: 'a', key: 'b' }).compile()).not.toThrow()
})
