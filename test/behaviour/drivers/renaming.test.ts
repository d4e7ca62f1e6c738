import { drizzle } from 'drizzle-orm/postgres-js'
import { fromKysely } from 'drizzle-ratelimit/kysely'
import { usage } from 'drizzle-ratelimit/reports'
import { CamelCasePlugin } from 'kysely'
import postgres from 'postgres'
import { describe, expect, inject, test } from 'vitest'
import { checkTables, type Database, Ratelimit } from '../../../src/index.ts'
import { closePeriods } from '../../../src/quota/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { kyselyOf } from '../../support/kysely.ts'
import { worksOn } from './works-on.ts'

// Drivers that give the columns of their answers other names.

const database = useDatabase()

function renaming(rename: (name: string) => string, db: Database = database.db): Database {
  const renamed = (row: object) =>
    Object.fromEntries(Object.entries(row).map(([name, value]) => [rename(name), value]))
  return {
    execute: async (query) => {
      const answer = (await db.execute(query)) as { readonly rows?: object[] } | object[]
      const rows = 'rows' in answer ? answer.rows : (answer as object[])
      return { rows: rows?.map(renamed) }
    },
    transaction: (work, config) => db.transaction((tx) => work(renaming(rename, tx)), config),
    refreshMaterializedView: undefined,
    ...('rollback' in db ? { rollback: undefined } : {}),
  }
}

function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

test('to camel case', () => worksOn(renaming(camel), 'camel'))

test('a call that gets no slot is told when one is free', async () => {
  const clock = new TestClock()
  const own = { prefix: 'camel slots', limit: 1, lease: '10s', clock: clock.now } as const
  const jobs = new Semaphore({ ...own, db: renaming(camel) })
  const slot = await jobs.acquire('key')
  expect(await jobs.holders('key')).toMatchObject([{ slot: 1, expires: clock.ms + 10_000 }])
  clock.advance(4000)
  expect(await jobs.acquire('key')).toMatchObject({ success: false, retryAfter: 6000 })
  if (slot.success) expect(await slot.release()).toBe(true)
  expect(await jobs.acquire('key')).toMatchObject({ success: true })
})

test("to camel case in the caller's transaction", () =>
  database.db.transaction((tx) => worksOn(renaming(camel, tx as Database), 'camel in a transaction')))

test.runIf(inject('driver') === 'postgres-js')('postgres.js with postgres.camel', async () => {
  const client = postgres(database.url, { transform: postgres.camel, max: 2 })
  await worksOn(drizzle({ client }), 'postgres.camel').finally(() => client.end())
})

test("Kysely's CamelCasePlugin", () =>
  worksOn(fromKysely(kyselyOf(database).withPlugin(new CamelCasePlugin())), 'CamelCasePlugin'))

describe.each([
  ['one word', (name: string) => name.toUpperCase(), true],
  ['several words', (name: string) => name.replaceAll('_', '-'), false],
])('if a driver renames %s in an unknown way', (name, rename, isAnyName) => {
  const limiter = Ratelimit.slidingWindow(3, '1h')
  const own = { prefix: name, limiter, durable: true } as const
  const ratelimitOn = (db: Database) => new Ratelimit({ ...own, db, cleanupProbability: 0 })

  test.each([
    ['limit', (db: Database) => ratelimitOn(db).limit('limit'), { remaining: 1 }],
    ['getRemaining', (db: Database) => ratelimitOn(db).getRemaining('getRemaining'), { remaining: 2 }],
    [
      'getRemainingAll',
      (db: Database) => ratelimitOn(db).getRemainingAll(['getRemainingAll', 'other']),
      [{ remaining: 2 }, { remaining: 3 }],
    ],
  ])('%s throws, or reads no such name', async (key, call, right) => {
    await ratelimitOn(database.db).limit(key)
    const answer = call(renaming(rename))
    if (isAnyName) await expect(answer).rejects.toMatchObject({ code: 'DATABASE', sqlState: undefined })
    else expect(await answer).toMatchObject(right)
  })

  test.each([
    ['usage', (db: Database) => usage({ db, ...own })],
    ['usage at a time', (db: Database) => usage({ db, ...own, clock: () => new Date() })],
    ['usage by plan', (db: Database) => usage({ db, prefix: name, limiterOf: () => limiter, durable: true })],
  ])('%s throws instead of giving a wrong number', async (_, call) => {
    await ratelimitOn(database.db).limit('key')
    await expect(call(renaming(rename))).rejects.toMatchObject({ code: 'DATABASE', sqlState: undefined })
  })

  test('closePeriods overlooks no period', async () => {
    const windows = { prefix: `windows, ${name}`, limiter: Ratelimit.fixedWindow(3, '1h') }
    await new Ratelimit({ ...windows, db: database.db, durable: true }).limit('key')
    const later = new Date(Date.now() + 7_200_000)
    const rows = { ...windows, durable: true, clock: () => later }
    const close = (db: Database) => db.transaction((tx) => closePeriods({ ...rows, db }, { tx }))
    await expect(close(renaming(rename))).rejects.toMatchObject({ code: 'DATABASE', sqlState: undefined })
    expect(await close(database.db as Database)).toMatchObject([{ key: 'key', used: 1 }])
  })
})

test('checkTables says that it cannot read the catalogs', async () => {
  const renamed = renaming((name) => name.toUpperCase())
  await expect(checkTables(renamed)).rejects.toMatchObject({ code: 'DATABASE', sqlState: undefined })
})

test('a cleanup that cannot read how many rows it deleted ends', async () => {
  let answers = 0
  const db = renaming((name) => {
    if (answers++ === 10) throw new Error('it went on')
    return name.toUpperCase()
  })
  const ratelimit = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(3, '1h'), prefix: 'deleted' })
  await expect(ratelimit.cleanup()).rejects.toMatchObject({ code: 'DATABASE', sqlState: undefined })
})
