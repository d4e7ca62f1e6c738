import { pgSchema } from 'drizzle-orm/pg-core'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { checkTables, type Database, Ratelimit, rateLimitTables } from '../../../src/index.ts'
import { emptyDatabase, hasServer, type TestDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'
import { shipped } from './shipped.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await emptyDatabase()
})
afterAll(() => database.close())
beforeEach(() =>
  database.script('drop schema public cascade; create schema public; drop schema if exists limits cascade'),
)

const CALLERS = 20
const limiter = Ratelimit.fixedWindow(100, '1m')
const own = rateLimitTables({ schema: pgSchema('limits'), ephemeral: 'a', durable: 'b' })

/** Opens when the last party has arrived. */
function gate(parties: number): () => Promise<void> {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  let come = 0
  return () => {
    if (++come === parties) open()
    return opened
  }
}

/**
 * The same database as an object of its own, whose second statement waits until all have answers to their
 * first.
 */
function lookingFirst(db: Database, allHaveLooked: () => Promise<void>): Database {
  let statements = 0
  return watch(db, () => (++statements === 2 ? allHaveLooked() : undefined)).db
}

const places = [
  { name: 'the shipped tables', tables: shipped },
  { name: 'tables and a Postgres schema of their own', tables: own },
]

describe.each(places)('20 first calls at once, of $name', ({ tables }) => {
  async function expectAllCounted(databases: readonly Database[]): Promise<void> {
    const calls = databases.map((db) =>
      new Ratelimit({ db, limiter, prefix: 'first', tables, autoMigrate: true }).limit('key'),
    )
    const answers = await Promise.all(calls)
    const remaining = answers.map((answer) => answer.remaining).sort((a, b) => a - b)
    expect(remaining).toEqual(Array.from({ length: CALLERS }, (_, i) => 100 - CALLERS + i))
    expect(await checkTables(database.db, tables)).toEqual([])
  }

  test('limiters of one database object', async () => {
    const { db } = watch(database.db)
    await expectAllCounted(Array.from({ length: CALLERS }, () => db))
  })

  test('limiters of 20 database objects, all of which have found the tables missing', async () => {
    const allHaveLooked = gate(CALLERS)
    await expectAllCounted(Array.from({ length: CALLERS }, () => lookingFirst(database.db, allHaveLooked)))
  })

  test.runIf(hasServer())('from 20 connections, as of 20 processes', async () => {
    const allHaveLooked = gate(CALLERS)
    const pools = Array.from({ length: CALLERS }, () => database.connect(1))
    await expectAllCounted(pools.map(({ db }) => lookingFirst(db, allHaveLooked)))
  })
})

describe.runIf(hasServer())('it waits for no open transaction', () => {
  /** Calls while a transaction has written to the ephemeral table. A statement that waits for a lock fails. */
  async function limitBeside(durable: boolean): Promise<unknown> {
    const open = await database.client()
    await open.query('begin')
    await open.query(
      "insert into rate_limit_ephemeral (prefix, key, expires_at) values ('open', 'key', now())",
    )
    try {
      const { db } = database.connect(1)
      await db.execute("set lock_timeout = '500ms'")
      const config = { db, limiter, prefix: 'beside', autoMigrate: true, cleanupProbability: 0 }
      return await new Ratelimit(durable ? { ...config, durable } : config).limit('key')
    } finally {
      await open.query('rollback')
    }
  }

  beforeEach(async () => {
    await new Ratelimit({
      db: watch(database.db).db,
      limiter,
      prefix: 'creates',
      autoMigrate: true,
    }).cleanup()
  })

  test('where both tables exist', async () => {
    expect(await limitBeside(false)).toMatchObject({ success: true })
    expect(await limitBeside(true)).toMatchObject({ success: true })
  })

  test('where the other table is to be created', async () => {
    await database.script('drop table rate_limit_durable')
    expect(await limitBeside(true)).toMatchObject({ success: true })
    expect(await checkTables(database.db)).toEqual([])
  })
})
