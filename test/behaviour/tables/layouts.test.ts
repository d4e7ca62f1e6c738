import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { limitAll, Ratelimit, rateLimitTables, tableSql } from '../../../src/index.ts'
import { closePeriods } from '../../../src/quota/index.ts'
import { emptyDatabase, type TestDatabase } from '../../support/databases.ts'

/** SQL where T stands for a table of the limiter's, which is empty. */
const layouts = {
  'one table': [],
  'partitions by key': partitioned('hash (key)', [0, 1, 2, 3].map(ofFour)),
  'partitions by prefix': partitioned('list (prefix)', ["for values in ('periods')", 'default']),
  'partitions of partitions': [
    ...partitioned('hash (key)', [0, 1, 2].map(ofFour)),
    'create table T_3 partition of T for values with (modulus 4, remainder 3) partition by list (prefix)',
    'create table T_3_0 partition of T_3 default',
  ],
  'a child table': ['create table T_child () inherits (T)'],
}

function ofFour(remainder: number): string {
  return `for values with (modulus 4, remainder ${remainder})`
}

function partitioned(by: string, bounds: readonly string[]): string[] {
  return [
    'alter table T rename to T_like',
    `create table T (like T_like including all) partition by ${by}`,
    'drop table T_like',
    ...bounds.map((bound, place) => `create table T_${place} partition of T ${bound}`),
  ]
}

const tables = rateLimitTables({ ephemeral: 'quick', durable: 'slow' })
const limiter = Ratelimit.fixedWindow(1_000, '1m')
const PREFIXES = ['ended', 'periods', 'kept', 'empty']

describe.each(Object.entries(layouts))('%s', (name, changes) => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await emptyDatabase()
    for (const statement of tableSql(tables)) await database.script(statement)
    for (const change of changes) {
      await database.script(change.replaceAll('T', 'quick'))
      await database.script(change.replaceAll('T', 'slow'))
    }
  })
  afterAll(() => database.close())

  function ratelimit(prefix: string, more = {}): Ratelimit {
    return new Ratelimit({ db: database.db, limiter, prefix, tables, cleanupProbability: 0, ...more })
  }

  /** Puts rows of keys 0 to 99 of each prefix into the table, mixed, so that all places have rows of each. */
  async function fill(table: string): Promise<void> {
    await database.script(`delete from ${table}`)
    await database.script(`
      insert into ${table} (prefix, key, count, window_start, expires_at)
      select prefix, key::text, 1, now() - interval '2 minutes',
        now() + interval '1 minute' * case prefix when 'kept' then 60 else -1 end
      from unnest(array['${PREFIXES.join("','")}']) as prefix, generate_series(0, 99) as key order by random()`)
  }

  async function counts(table: string): Promise<Record<string, number>> {
    const rows = await database.rows(
      `select prefix, count(*)::integer as rows from ${table} group by prefix order by prefix`,
    )
    return Object.fromEntries(rows.map(({ prefix, rows }) => [String(prefix), Number(rows)]))
  }

  test('cleanup removes the expired rows of its prefix, and no others', async () => {
    await fill('quick')
    expect(await ratelimit('ended').cleanup()).toBe(100)
    expect(await counts('quick')).toEqual({ empty: 100, kept: 100, periods: 100 })
    expect(await ratelimit('kept').cleanup()).toBe(0)
    expect(await counts('quick')).toEqual({ empty: 100, kept: 100, periods: 100 })
  })

  test('closePeriods removes the periods that it returns, and no other row', async () => {
    await fill('slow')
    const closed = await database.db.transaction((tx) =>
      closePeriods(ratelimit('periods', { durable: true }), { tx, limit: 60 }),
    )
    expect(closed.map(({ used }) => used)).toEqual(Array(60).fill(1))
    expect(await counts('slow')).toEqual({ empty: 100, ended: 100, kept: 100, periods: 40 })
    const left = await database.rows(`select key from slow where prefix = 'periods'`)
    const keys = [...closed, ...left].map(({ key }) => key)
    expect(new Set(keys).size).toBe(100)
  })

  test('a list that is denied leaves no rows of new keys, and removes no other row', async () => {
    await fill('quick')
    // A bucket that begins with less than it holds keeps its row, so the list makes both rows.
    const filling = ratelimit('filling', {
      limiter: Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 5 }),
    })
    for (let list = 0; list < 40; list++) {
      const requests = [
        { ratelimit: filling, key: `new ${list}`, rate: 6 },
        { ratelimit: ratelimit('empty'), key: `new ${list}` },
      ]
      expect(await limitAll(requests)).toMatchObject({ success: false })
    }
    expect(await counts('quick')).toEqual({ empty: 100, ended: 100, filling: 40, kept: 100, periods: 100 })
  })

  test('a reset removes one row', async () => {
    await fill('quick')
    await ratelimit('kept').resetUsedTokens('50')
    expect(await counts('quick')).toEqual({ empty: 100, ended: 100, kept: 99, periods: 100 })
  })

  test('a reset of a bucket that begins with less changes one row', async () => {
    await fill('quick')
    const limiter = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 5 })
    const filling = ratelimit('filling', { limiter })
    for (const key of ['new', 'known']) await filling.limit(key)
    for (const key of ['other', 'known']) await filling.resetUsedTokens(key)
    expect(await counts('quick')).toEqual({ empty: 100, ended: 100, filling: 3, kept: 100, periods: 100 })
    const looks = await filling.getRemainingAll(['new', 'other', 'known'])
    expect(looks.map(({ remaining }) => remaining)).toEqual([4, 10, 10])
  })

  test('first calls, known keys, lists and looks are counted', async () => {
    const api = ratelimit('api')
    const keys = Array.from({ length: 40 }, (_, key) => `key ${key}`)
    for (const left of [999, 998]) {
      const answers = await Promise.all(keys.map((key) => api.limit(key)))
      expect(answers.map(({ remaining }) => remaining)).toEqual(keys.map(() => left))
    }
    for (const key of keys.slice(0, 5)) {
      const requests = [
        { ratelimit: api, key },
        { ratelimit: api, key: `${key} b` },
      ]
      expect(await limitAll(requests)).toMatchObject({ success: true })
      expect(await api.getRemaining(key)).toMatchObject({ remaining: 997 })
    }
  })

  if (name === 'a child table') {
    test('an archive that inherits from the table loses and changes nothing', async () => {
      await database.script('delete from quick; delete from slow')
      for (const table of ['quick_child', 'slow_child']) await fill(table)
      const stored = () =>
        database.rows(`select 1, * from quick_child union all select 2, * from slow_child order by 1, 2, 3`)
      const before = await stored()
      expect(await ratelimit('ended').cleanup()).toBe(0)
      await ratelimit('ended').resetUsedTokens('1')
      const closed = database.db.transaction((tx) =>
        closePeriods(ratelimit('periods', { durable: true }), { tx }),
      )
      expect(await closed).toEqual([])
      expect(await stored()).toEqual(before)
    })
  }
})
