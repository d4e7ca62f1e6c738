import { PgDialect } from 'drizzle-orm/pg-core'
import { denied, usage } from 'drizzle-ratelimit/reports'
import { describe, expect, test } from 'vitest'
import { checkTables, type Database, limitAll, Ratelimit } from '../../../src/index.ts'
import { closePeriods, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'

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
    ['limitAll', (on) => limitAll([{ ratelimit: on, key: 'key' }])],
    ['limitAll of a new key', (on) => limitAll([{ ratelimit: on, key: 'new' }])],
    ['spend', (on) => spend([{ ratelimit: on, key: 'key' }], { rate: 1 })],
    ['usage', (_, db, prefix) => usage({ db, prefix, limiter, durable: true })],
    ['usage by plan', (_, db, prefix) => usage({ db, prefix, limiterOf: () => limiter, durable: true })],
    ['denied', (_, db, prefix) => denied({ db, prefix, durable: true })],
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

test('closePeriods closes nothing if an answer has 32 rows for a key', async () => {
  await ratelimitOn(database.db, 'closing').limit('key', { rate: 7 })
  const later = new Date(Date.now() + 7_200_000)
  const close = (db: Database, at: (sql: string) => boolean) => {
    const changed = answering((rows, sql) => (at(sql) ? fromEachShard(rows) : rows), db)
    const rows = { db, prefix: 'closing', limiter, durable: true, clock: () => later }
    return changed.transaction((tx) => closePeriods(rows, { tx }))
  }
  for (const statement of [/^select/, /^with/]) {
    await expect(close(database.db, (sql) => statement.test(sql))).rejects.toMatchObject(NOT_AS_EXPECTED)
  }
  expect(await close(database.db, () => false)).toMatchObject([{ key: 'key', used: 7 }])
})

test.each([
  ['the first row twice', ([first]: Rows) => [first, first]],
  ['a row of a key that was not asked for', ([first, second]: Rows) => [first, { ...second, place: 3 }]],
])('an answer with as many rows as keys is an error if it has %s', async (name, change) => {
  const answers = answering((rows) => change(rows) as Rows)
  await expect(ratelimitOn(answers, name).getRemainingAll(['one', 'two'])).rejects.toMatchObject(
    NOT_AS_EXPECTED,
  )
})
