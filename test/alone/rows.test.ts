import { PgDialect } from 'drizzle-orm/pg-core'
import { describe, expect, test } from 'vitest'
import { checkTables, closePeriods, type Database, Ratelimit, usage } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'

// Answers that have more rows than keys, as a sharded database gives them that sends a statement to each shard.

const database = useDatabase()
const dialect = new PgDialect()
const limiter = Ratelimit.fixedWindow(20, '1h')
const SHARDS = 32

type Rows = readonly Readonly<Record<string, unknown>>[]

/** The database, with other rows in its answers. */
function answering(change: (rows: Rows, sql: string) => Rows, db: Database = database.db): Database {
  return {
    execute: async (query) => {
      const { rows } = (await db.execute(query)) as { readonly rows: Rows }
      return { rows: change(rows, dialect.sqlToQuery(query).sql) }
    },
    transaction: (work, config) => db.transaction((tx) => work(answering(change, tx)), config),
    refreshMaterializedView: undefined,
    ...('rollback' in db ? { rollback: undefined } : {}),
  }
}

/** A row from each shard: the row itself, and those of keys that are full. */
const fromEachShard = (rows: Rows) =>
  rows.flatMap((row) =>
    Array.from({ length: SHARDS }, (_, shard) => (shard === 0 ? row : { ...row, count: 0 })),
  )

const everyShard = answering.bind(undefined, fromEachShard)

function ratelimitOn(db: Database, prefix: string): Ratelimit {
  return new Ratelimit({ db, limiter, prefix, durable: true, cleanupProbability: 0 })
}

const NOT_AS_EXPECTED = { code: 'DATABASE', sqlState: undefined }

describe('an answer with 32 rows for a key is an error, never an answer', () => {
  const calls: readonly [
    name: string,
    call: (on: Ratelimit, db: Database, prefix: string) => Promise<unknown>,
  ][] = [
    ['limit', (on) => on.limit('key')],
    ['limit of a new key', (on) => on.limit('new')],
    ['a refund', (on) => on.limit('key', { rate: -1 })],
    ['reserve', (on) => on.reserve('key', { rate: 1 })],
    ['getRemaining', (on) => on.getRemaining('key')],
    ['getRemainingAll', (on) => on.getRemainingAll(['key', 'other'])],
    ['limitAll', (on) => Ratelimit.limitAll([{ ratelimit: on, key: 'key' }])],
    ['limitAll of a new key', (on) => Ratelimit.limitAll([{ ratelimit: on, key: 'new' }])],
    ['spend', (on) => Ratelimit.spend([{ ratelimit: on, key: 'key' }], { rate: 1 })],
    ['usage', (_, db, prefix) => usage(db, { prefix, limiter })],
    ['usage by plan', (_, db, prefix) => usage(db, { prefix, limiterOf: () => limiter })],
    ['cleanup', (on) => on.cleanup()],
    ['checkTables', (_, db) => checkTables(db)],
  ]
  test.each(calls)('%s', async (name, call) => {
    await ratelimitOn(database.db, name).limit('key', { rate: 20 })
    await ratelimitOn(database.db, name).limit('other', { rate: 1 })
    const db = everyShard()
    await expect(call(ratelimitOn(db, name), db, name)).rejects.toMatchObject(NOT_AS_EXPECTED)
  })
})

test('closePeriods: 32 rows for a key close nothing', async () => {
  const own = { prefix: 'closing', limiter }
  await ratelimitOn(database.db, 'closing').limit('key', { rate: 7 })
  const later = new Date(Date.now() + 7_200_000)
  const close = (db: Database, at: (sql: string) => boolean) => {
    const changed = answering((rows, sql) => (at(sql) ? fromEachShard(rows) : rows), db)
    return changed.transaction((tx) => closePeriods(tx, { ...own, clock: () => later }))
  }
  for (const statement of [/^select/, /^with/]) {
    await expect(close(database.db, (sql) => statement.test(sql))).rejects.toMatchObject(NOT_AS_EXPECTED)
  }
  expect(await close(database.db, () => false)).toMatchObject([{ key: 'key', used: 7 }])
})

test.each([
  ['the first row twice', ([first]: Rows) => [first, first]],
  ['a row of a key that nobody asked for', ([first, second]: Rows) => [first, { ...second, place: 3 }]],
])('as many rows as keys: %s', async (name, change) => {
  const answers = answering((rows) => change(rows) as Rows)
  await expect(ratelimitOn(answers, name).getRemainingAll(['one', 'two'])).rejects.toMatchObject(
    NOT_AS_EXPECTED,
  )
})

describe('limitAll and spend charge nothing that they deny', () => {
  const isLook = (sql: string) => /left join lateral/.test(sql)
  const isTake = (sql: string) => /"ratelimit_written"/.test(sql)

  /** Two limits in tables of their own, of which the second one is used up. */
  async function twoLimits(prefix: string, db: Database) {
    const quick = { limiter, prefix, cleanupProbability: 0 }
    const both = (on: Database) => [
      { ratelimit: new Ratelimit({ ...quick, db: on, durable: true }), key: 'key' },
      { ratelimit: new Ratelimit({ ...quick, db: on }), key: 'key' },
    ]
    const [first, second] = both(database.db)
    await second?.ratelimit.limit('key', { rate: 20 })
    const used = async () => [
      (await first?.ratelimit.getRemaining('key'))?.used,
      (await second?.ratelimit.getRemaining('key'))?.used,
    ]
    return { requests: both(db), used }
  }

  test.each([
    [
      'a look that brings a row from each shard',
      (rows: Rows, sql: string) => (isLook(sql) ? fromEachShard(rows) : rows),
    ],
    [
      'a look that brings the row of another shard',
      (rows: Rows, sql: string) => (isLook(sql) ? rows.map((row) => ({ ...row, count: 0 })) : rows),
    ],
    [
      'a look that brings a row with less',
      (rows: Rows, sql: string) => (isLook(sql) ? rows.map((row) => ({ ...row, count: 9 })) : rows),
    ],
    [
      'a take that denies',
      (rows: Rows, sql: string) =>
        isLook(sql)
          ? rows.map((row) => ({ ...row, count: 0 }))
          : isTake(sql)
            ? rows.map((row) => ({ ...row, count: 0 }))
            : rows,
    ],
  ])('%s', async (name, change) => {
    const { requests, used } = await twoLimits(name, answering(change))
    await expect(Ratelimit.limitAll(requests)).rejects.toMatchObject(NOT_AS_EXPECTED)
    await expect(Ratelimit.spend(requests, { rate: 21 })).rejects.toMatchObject(NOT_AS_EXPECTED)
    expect(await used()).toEqual([0, 20])
  })

  test("in the caller's transaction too, before anything is committed", async () => {
    const db = answering((rows, sql) => (isLook(sql) ? rows.map((row) => ({ ...row, count: 0 })) : rows))
    const { requests, used } = await twoLimits('joined', db)
    const work = db.transaction((tx) => Ratelimit.limitAll(requests, { tx }))
    await expect(work).rejects.toMatchObject(NOT_AS_EXPECTED)
    expect(await used()).toEqual([0, 20])
  })
})
