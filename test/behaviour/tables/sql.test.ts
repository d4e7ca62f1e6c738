import { sql } from 'drizzle-orm'
import { pgSchema } from 'drizzle-orm/pg-core'
import { afterEach, beforeAll, expect, test } from 'vitest'
import { checkTables, Ratelimit, rateLimitTables, storageSql, tableSql } from '../../../src/index.ts'
import { execute } from '../../../src/kernel/database/run.ts'
import { catalogsOf } from '../../support/catalogs.ts'
import { emptyDatabase, type TestDatabase, useDatabase } from '../../support/databases.ts'

const migrated = useDatabase()
let expected: string[] = []
beforeAll(async () => {
  expected = await catalogsOf(migrated)
})

const opened: TestDatabase[] = []
afterEach(async () => {
  for (const database of opened.splice(0)) await database.close()
})

async function empty(): Promise<TestDatabase> {
  const database = await emptyDatabase()
  opened.push(database)
  return database
}

/** One at a time, as PGlite and pg-proxy take them. */
async function run(database: TestDatabase, ...lists: readonly string[][]): Promise<void> {
  for (const statement of lists.flat()) await database.db.execute(statement)
}

test('tableSql and storageSql make the same tables as the migrations, and change nothing when they run again', async () => {
  const database = await empty()
  await run(database, tableSql(), storageSql())
  expect(await catalogsOf(database)).toEqual(expected)
  await run(database, tableSql(), storageSql())
  expect(await catalogsOf(database)).toEqual(expected)
})

test('each can run again by itself', async () => {
  const database = await empty()
  await run(database, tableSql(), tableSql(), storageSql(), storageSql())
  expect(await catalogsOf(database)).toEqual(expected)
})

test('for tables of your own they make the same as autoMigrate, with the Postgres schema', async () => {
  const tables = rateLimitTables({ schema: pgSchema('The "limits"'), ephemeral: "a'b", durable: 'B' })
  const [database, automatic] = [await empty(), await empty()]
  await run(database, tableSql(tables), storageSql(tables))
  expect(await checkTables(database.db, tables)).toEqual([])
  const limiter = Ratelimit.fixedWindow(5, '1m')
  const auto = { db: automatic.db, limiter, prefix: 'auto', tables, autoMigrate: true }
  await new Ratelimit(auto).limit('key')
  const made = await catalogsOf(database, 'The "limits"')
  expect(made).toEqual(await catalogsOf(automatic, 'The "limits"'))
  expect(made.length).toBe(expected.length)
  await run(database, tableSql(tables), storageSql(tables))
  expect(await catalogsOf(database, 'The "limits"')).toEqual(made)
})

test('they leave migrated tables and their rows alone', async () => {
  const limiter = Ratelimit.fixedWindow(5, '1m')
  const ratelimit = new Ratelimit({ db: migrated.db, limiter, prefix: 'kept' })
  await ratelimit.limit('key')
  await run(migrated, tableSql(), storageSql())
  expect(await catalogsOf(migrated)).toEqual(expected)
  expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 4 })
})

test('autoMigrate makes the same tables as the migrations', async () => {
  const database = await empty()
  const limiter = Ratelimit.fixedWindow(5, '1m')
  await new Ratelimit({ db: database.db, limiter, prefix: 'auto', autoMigrate: true }).limit('key')
  expect(await catalogsOf(database)).toEqual(expected)
})

test.each([
  ['a type', 'alter table rate_limit_durable alter column count type integer'],
  ['a column', 'alter table rate_limit_durable add extra text'],
  ['whether a column may be null', 'alter table rate_limit_durable alter column tokens set not null'],
  [
    'the name of a constraint',
    'alter table rate_limit_durable rename constraint rate_limit_durable_prefix_key_pk to pk',
  ],
  ['the name of an index', 'alter index rate_limit_durable_prefix_expires_at_index rename to i'],
  ['one table logged', 'alter table rate_limit_ephemeral set logged'],
  ['one storage parameter', 'alter table rate_limit_ephemeral set (fillfactor = 71)'],
  ['one index more', 'create index on rate_limit_ephemeral (expires_at)'],
])('the comparison sees %s', async (_, change) => {
  const undo = new Error('undo')
  const changed = migrated.db.transaction(async (tx) => {
    await tx.execute(sql.raw(change))
    const rows = async (query: string) => [...(await execute(tx, sql.raw(query)))]
    expect(await catalogsOf({ rows })).not.toEqual(expected)
    throw undo
  })
  // Drizzle hands on what the callback threw.
  await expect(changed).rejects.toBe(undo)
})
