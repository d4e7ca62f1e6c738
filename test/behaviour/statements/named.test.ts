import { sql } from 'drizzle-orm'
import { afterEach, beforeEach, describe, expect, inject, test, vi } from 'vitest'
import { rateLimitTables } from '../../../schema/index.ts'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { namesOn } from '../../support/prepared.ts'

const driver = inject('driver')
// PGlite alone ignores a name.
const named = driver !== 'pglite'
const database = useDatabase()
const options = { limiter: Ratelimit.tokenBucket(5, '10s', 100), cleanupProbability: 0 }
let prefixes = 0

// The size of the table is asked for once and then believed: the statements with and without the question
// differ.
beforeEach(() => void vi.spyOn(performance, 'now').mockReturnValue(1_000_000))
afterEach(() => void vi.restoreAllMocks())

function limiterOn(db: Db, preparedStatements?: boolean): Ratelimit {
  const prefix = `named ${prefixes++}`
  return new Ratelimit({
    ...options,
    db,
    prefix,
    ...(preparedStatements !== undefined && { preparedStatements }),
  })
}

function oneConnection(): Db {
  return named ? database.connect(1).db : database.db
}

test('a statement of its own has a name, and one in a transaction has none', async () => {
  const db = oneConnection()
  const ratelimit = limiterOn(db)
  await db.transaction((tx) => ratelimit.limit('key', { tx }))
  expect(await namesOn(db)).toEqual([])
  // One takes and asks for the table's size, one takes, and one makes.
  await ratelimit.limit('key')
  await ratelimit.limit('other')
  expect(await namesOn(db)).toHaveLength(named ? 3 : 0)
  await Promise.all([ratelimit.limit('key'), ratelimit.limit('other')])
  await ratelimit.getRemaining('key')
  expect(await namesOn(db)).toHaveLength(named ? 5 : 0)
})

test('another limiter of the same table has the same names, whatever its prefix and its numbers', async () => {
  const db = oneConnection()
  const namesAfter = async (one: Ratelimit) => {
    for (const key of ['key', 'other', 'key']) await one.limit(key)
    await Promise.all([one.limit('key'), one.limit('other')])
    await one.getRemaining('key')
    return namesOn(db)
  }
  const names = await namesAfter(limiterOn(db))
  const limiter = Ratelimit.tokenBucket(7, '1h', 70)
  const other = new Ratelimit({ ...options, db, limiter, prefix: `named ${prefixes++}` })
  expect(await namesAfter(other)).toEqual(names)
})

test('resets and sweeps have no names', async () => {
  const db = oneConnection()
  const ratelimit = limiterOn(db)
  await ratelimit.resetUsedTokens('key')
  await ratelimit.cleanup()
  expect(await namesOn(db)).toEqual([])
})

test('preparedStatements: true also names statements in transactions, and those of limitAll', async () => {
  const db = oneConnection()
  // Few kinds of lists are kept for a table, and other tests have had theirs.
  const tables = rateLimitTables()
  const ratelimit = new Ratelimit({ ...options, db, prefix: 'of its own', preparedStatements: true, tables })
  await db.transaction((tx) => ratelimit.limit('key', { tx }))
  expect(await namesOn(db)).toHaveLength(named ? 2 : 0)
  // A list is kept after it was sent ten times.
  for (let i = 0; i < 11; i++) await limitAll([{ ratelimit, key: 'key' }])
  expect((await namesOn(db)).length).toBeGreaterThan(named ? 2 : -1)
})

test('preparedStatements: false names none', async () => {
  const db = oneConnection()
  const ratelimit = limiterOn(db, false)
  await ratelimit.limit('key')
  await ratelimit.cleanup()
  expect(await namesOn(db)).toEqual([])
})

/** Has the limiter's calls prepare all of their statements. */
async function warm(ratelimit: Ratelimit): Promise<void> {
  for (let i = 0; i < 3; i++) await ratelimit.limit('key')
}

/**
 * The names that postgres.js may give next. It counts them up after a text by chance, which may end in digits
 * too.
 */
function namesAfter(name: string): Set<string> {
  const digits = /\d+$/.exec(name)?.[0] ?? ''
  const next = new Set<string>()
  for (let length = 1; length <= digits.length; length++) {
    const [text, count] = [name.slice(0, -length), Number(name.slice(-length))]
    for (let i = 1; i < 40; i++) next.add(`${text}${count + i}`)
  }
  return next
}

/** Takes the names on the connection, which the driver believes not to be there. */
async function occupyNames(db: Db): Promise<void> {
  const names = await namesOn(db)
  if (driver === 'postgres-js') {
    for (const name of namesAfter(names.at(-1) ?? '')) {
      await db.execute(sql.raw(`prepare "${name}" as select 1`)).catch(() => {})
    }
    return
  }
  await db.execute(
    sql.raw(['deallocate all', ...names.map((name) => `prepare ${name} as select 1`)].join(';')),
  )
  const [client] = Reflect.get(Reflect.get(db, '$client'), '_clients')
  client.connection.parsedStatements = {}
}

// What a pooler does that hands each transaction another connection: the name is gone, or it is there already.
// postgres.js itself prepares a statement again whose name is gone.
const refusals: [string, (db: Db) => Promise<unknown>][] = [
  ...(driver === 'node-postgres'
    ? [['26000', (db) => db.execute(sql`deallocate all`)] satisfies [string, (db: Db) => Promise<unknown>]]
    : []),
  ['42P05', occupyNames],
]

describe.runIf(named).each(refusals)('a connection that refuses the name with %s', (_, refuse) => {
  test('gets no names from then on', async () => {
    const db = oneConnection()
    const ratelimit = limiterOn(db)
    await warm(ratelimit)
    await refuse(db)
    const { remaining } = await ratelimit.getRemaining('key')
    expect(await ratelimit.limit('key')).toMatchObject({ success: true, remaining: remaining - 1 })
    expect(await ratelimit.limit('new')).toMatchObject({ success: true, remaining: 99 })
    await db.execute(sql`deallocate all`)
    await ratelimit.limit('key')
    await Promise.all([ratelimit.limit('key'), ratelimit.limit('other')])
    expect(await namesOn(db)).toEqual([])
  })

  test.runIf(driver === 'node-postgres')(
    'breaks a transaction that uses names, and the next one uses none',
    async () => {
      const db = oneConnection()
      const ratelimit = limiterOn(db, true)
      const joined = () => db.transaction((tx) => ratelimit.limit('key', { tx }))
      for (let i = 0; i < 3; i++) await joined()
      await refuse(db)
      await expect(joined()).rejects.toMatchObject({ code: 'DATABASE' })
      expect(await joined()).toMatchObject({ success: true })
    },
  )
})

test.runIf(driver === 'postgres-js')('postgres.js prepares a forgotten statement again', async () => {
  const db = oneConnection()
  const ratelimit = limiterOn(db)
  await warm(ratelimit)
  await db.execute(sql`deallocate all`)
  expect(await ratelimit.limit('key')).toMatchObject({ success: true, remaining: 96 })
  expect(await namesOn(db)).not.toEqual([])
})
