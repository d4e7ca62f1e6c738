import { sql } from 'drizzle-orm'
import { describe, expect, inject, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { type Db, useDatabase } from '../support/databases.ts'

// node-postgres alone makes something of a name.
const named = inject('driver') === 'node-postgres'
const database = useDatabase()
const options = { limiter: Ratelimit.tokenBucket(5, '10s', 100), cleanupProbability: 0, prefix: 'named' }

/** The names of this package on the connection of a pool of one. */
async function namesOn(db: Db): Promise<string[]> {
  const result: unknown = await db.execute(
    sql`select name from pg_prepared_statements where name like 'ratelimit%' order by name`,
  )
  return JSON.stringify(result).match(/ratelimit_[0-9a-f]{32}/g) ?? []
}

function oneConnection(): Db {
  return named ? database.connect(1).db : database.db
}

test('a statement of its own has a name, and one in a transaction has none', async () => {
  const db = oneConnection()
  const ratelimit = new Ratelimit({ ...options, db })
  await db.transaction((tx) => ratelimit.limit('key', { tx }))
  expect(await namesOn(db)).toEqual([])
  await ratelimit.limit('key')
  await ratelimit.limit('other')
  expect(await namesOn(db)).toHaveLength(named ? 1 : 0)
  await Promise.all([ratelimit.limit('key'), ratelimit.limit('other')])
  await ratelimit.getRemaining('key')
  expect(await namesOn(db)).toHaveLength(named ? 3 : 0)
})

test('preparedStatements: true names those in transactions too, limitAll among them', async () => {
  const db = oneConnection()
  const ratelimit = new Ratelimit({ ...options, db, preparedStatements: true })
  await db.transaction((tx) => ratelimit.limit('key', { tx }))
  expect(await namesOn(db)).toHaveLength(named ? 1 : 0)
  await Ratelimit.limitAll([{ ratelimit, key: 'key' }])
  expect((await namesOn(db)).length).toBeGreaterThan(named ? 1 : -1)
})

test('preparedStatements: false names none', async () => {
  const db = oneConnection()
  const ratelimit = new Ratelimit({ ...options, db, preparedStatements: false })
  await ratelimit.limit('key')
  await ratelimit.cleanup()
  expect(await namesOn(db)).toEqual([])
})

// What a pooler does that hands each transaction another connection: the name is gone, or it is there already.
describe.runIf(named).each<[string, (db: Db) => Promise<unknown>]>([
  ['26000', (db) => db.execute(sql`deallocate all`)],
  [
    '42P05',
    async (db) => {
      const [name] = await namesOn(db)
      // The driver believes that this connection does not know the name yet.
      const other = new Ratelimit({ ...options, db, preparedStatements: false })
      await other.limit('key')
      await db.execute(sql.raw(`deallocate all; prepare ${name} as select 1`))
      const [client] = Reflect.get(Reflect.get(db, '$client'), '_clients')
      client.connection.parsedStatements = {}
    },
  ],
])('a connection that refuses the name with %s', (_, refuse) => {
  test('is asked without, from then on', async () => {
    const db = oneConnection()
    const ratelimit = new Ratelimit({ ...options, db })
    await ratelimit.limit('key')
    await refuse(db)
    const { remaining } = await ratelimit.getRemaining('key')
    expect(await ratelimit.limit('key')).toMatchObject({ success: true, remaining: remaining - 1 })
    await db.execute(sql`deallocate all`)
    await ratelimit.limit('key')
    await Promise.all([ratelimit.limit('key'), ratelimit.limit('other')])
    expect(await namesOn(db)).toEqual([])
  })

  test('breaks a transaction in which names were asked for, and the next has none', async () => {
    const db = oneConnection()
    const ratelimit = new Ratelimit({ ...options, db, preparedStatements: true })
    await ratelimit.limit('key')
    await refuse(db)
    const joined = () => db.transaction((tx) => ratelimit.limit('key', { tx }))
    await expect(joined()).rejects.toMatchObject({ code: 'DATABASE' })
    expect(await joined()).toMatchObject({ success: true })
  })
})
