import { type OneLimitRows, usage } from 'drizzle-ratelimit/reports'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, limitAll, Ratelimit, rateLimitTables } from '../../../src/index.ts'
import { Quota, type QuotaConfig } from '../../../src/quota/index.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { HOUR_MS, JANUARY, kinds, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const DURABLE = { durable: true } as const

/** A durable quota of which keys have used so much, and what usage says of it. */
async function usedBy(uses: Record<string, number>, limiter = TEN['fixed window']) {
  const set = quotaOn(database, limiter, DURABLE)
  for (const [key, rate] of Object.entries(uses)) await set.quota.limit(key, { rate, force: true })
  const { prefix, clock } = set
  const rows = { db: database.db, prefix, limiter, durable: true, clock: clock.now }
  const find = ({ top, ...more }: Partial<OneLimitRows> & { top?: number } = {}) =>
    usage({ ...rows, ...more }, { top })
  const keys = async (options?: Parameters<typeof find>[0]) => (await find(options)).map(({ key }) => key)
  return { ...set, find, keys }
}

describe.each(kinds)('$name', ({ limiter, of }) => {
  test('gives the look at each key, the most used first', async () => {
    const { clock, quota, find, prefix } = await usedBy({ a: 3, b: 9, c: 0, d: 17, e: 5, f: 1 }, limiter)
    clock.advance(HOUR_MS / 4)
    const found = await find()
    expect(found.map(({ key }) => key)).toEqual(['d', 'b', 'e', 'a', 'f'])
    for (const { key, ...rest } of found) expect(rest).toEqual(await quota.getRemaining(key))
    expect(await usage({ db: database.db, prefix: `${prefix}0`, limiter, durable: true })).toEqual([])
  })

  test('sorts equal use by the keys, and gives the first ones', async () => {
    const { keys } = await usedBy({ y: 2, c: 5, x: 2, a: 5, b: 5, z: 9 }, limiter)
    expect(await keys()).toEqual(['z', 'a', 'b', 'c', 'x', 'y'])
    expect(await keys({ top: 3 })).toEqual(['z', 'a', 'b'])
    expect(await keys({ top: 1 })).toEqual(['z'])
    expect(await keys({ top: 1000 })).toHaveLength(6)
  })

  test('reads by another limit, such as the most common plan', async () => {
    const { find, quota } = await usedBy({ a: 3, b: 9 }, limiter)
    const smaller = of(4, '1h').limiter
    const found = await find({ limiter: smaller })
    for (const { key, ...rest } of found) {
      expect(rest).toEqual(await quota.getRemaining(key, { limiter: smaller }))
    }
    expect(found[0]).toMatchObject({ limit: 4 })
  })

  test('leaves out keys whose use has been given back or has come back', async () => {
    const { clock, quota, keys } = await usedBy({ a: 3, b: 6 }, limiter)
    await quota.limit('a', { rate: -3 })
    expect(await keys()).toEqual(['b'])
    clock.ms = (await quota.getRemaining('b')).reset
    expect(await keys()).toEqual([])
  })

  test('writes nothing, and locks nothing', async () => {
    const { find, prefix, clock } = await usedBy({ a: 3 }, limiter)
    const rows = () =>
      database.rows('select xmin::text, ctid::text, * from rate_limit_durable where prefix = $1', [prefix])
    const before = await rows()
    await find()
    expect(await rows()).toEqual(before)
    const { db, statements } = watch(database.db)
    expect(await usage({ db, prefix, limiter, clock: clock.now, durable: true })).toHaveLength(1)
    expect(statements).toHaveLength(1)
    expect(statements[0]).not.toContain('for update')
  })
})

test.each(kinds)(
  'an empty prefix takes one statement with a clock, and two without, $name',
  async ({ limiter }) => {
    const { db, statements } = watch(database.db)
    expect(await usage({ db, prefix: 'empty', limiter, clock: () => new Date(), durable: true })).toEqual([])
    expect(statements).toHaveLength(1)
    expect(await usage({ db, prefix: 'empty', limiter, durable: true })).toEqual([])
    expect(statements).toHaveLength(3)
  },
)

test('ten keys are found by default', async () => {
  const { keys } = await usedBy(Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`key ${i}`, 1])))
  expect(await keys()).toHaveLength(10)
  expect(await keys({ top: 12 })).toHaveLength(12)
})

test('a prefix matches whole prefixes only', async () => {
  const { prefix, keys, config } = await usedBy({ a: 1 })
  for (const other of [`${prefix} 2`, `${prefix}%`, prefix.slice(0, -1)]) {
    await new Quota({ ...config, prefix: other }).limit('other')
  }
  expect(await keys()).toEqual(['a'])
})

test.each(kinds)('rows of another algorithm are marked, $name', async ({ algorithm, limiter }) => {
  const { quota, find } = await usedBy({}, limiter)
  for (const kind of kinds) await quota.limit(kind.name, { limiter: kind.limiter, rate: 3 })
  const found = await find()
  expect(found).toHaveLength(kinds.length)
  for (const { key, isOther, ...rest } of found) {
    const kind = kinds.find(({ name }) => name === key)
    if (kind?.algorithm === algorithm) expect(rest).toEqual(await quota.getRemaining(key))
    // A bucket does not say what was used.
    else
      expect({ isOther, ...rest }).toEqual({ isOther: true, used: kind?.keeps === 'what was used' ? 3 : 0 })
  }
})

test('rows of another algorithm rank by their counts', async () => {
  const { quota, find } = await usedBy({ a: 2, d: 6 })
  for (const [key, rate] of Object.entries({ b: 3, c: 7 })) {
    await quota.limit(key, { rate, limiter: TEN['calendar month'] })
  }
  await quota.limit('e', { rate: 9, limiter: TEN['interval bucket'] })
  const found = (await find()).map(({ key, used, isOther = false }) => [key, used, isOther])
  expect(found).toEqual([
    ['c', 7, true],
    ['d', 6, false],
    ['b', 3, true],
    ['a', 2, false],
    ['e', 0, true],
  ])
  expect((await find({ top: 1 })).map(({ key }) => key)).toEqual(['c'])
})

test('rows of another algorithm that have expired are absent', async () => {
  const { clock, quota, keys } = await usedBy({})
  await quota.limit('month', { limiter: TEN['calendar month'] })
  clock.ms = JANUARY.end - 1
  expect(await keys()).toEqual(['month'])
  // A row lasts for an eighth of its period longer.
  clock.advance((745 * HOUR_MS) / 8)
  expect(await keys()).toEqual([])
})

test('rows of another period are marked', async () => {
  const [month, week] = [TEN['calendar month'], calendarWindow(10, 'week')]
  const anchor = new Date('2025-12-15T00:00:00Z')
  const anchored = calendarWindow(10, 'month', { anchor })
  const { quota, find } = await usedBy({ a: 3 }, month)
  await quota.limit('anchored', { limiter: anchored, rate: 7 })
  expect(await find()).toMatchObject([
    { key: 'anchored', used: 7, isOther: true },
    { key: 'a', used: 3, limit: 10 },
  ])
  expect(await find({ limiter: week })).toMatchObject([
    { key: 'anchored', used: 7, isOther: true },
    { key: 'a', used: 3, isOther: true },
  ])
})

test('a row of the next period, written by a clock that is ahead, is read at its own time', async () => {
  const limiter = calendarWindow(10, 'day')
  const { clock, config, find, keys, quota } = await usedBy({ a: 3, b: 5, c: 4 }, limiter)
  const ahead = new Date(clock.ms + 14 * HOUR_MS)
  const early = new Quota({ ...config, clock: () => ahead })
  await early.limit('ahead', { rate: 9 })
  const zone = calendarWindow(10, 'day', { timeZone: 'Asia/Kathmandu' })
  await early.limit('another day', { rate: 7, limiter: zone })
  const others = [
    { key: 'b', ...(await quota.getRemaining('b')) },
    { key: 'c', ...(await quota.getRemaining('c')) },
    { key: 'a', ...(await quota.getRemaining('a')) },
  ]
  const next = { key: 'ahead', ...(await quota.getRemaining('ahead')) }
  expect(next).toMatchObject({ used: 9, remaining: 1 })
  const another = { key: 'another day', used: 7, isOther: true }
  const found = await find()
  expect(found).toEqual([next, another, ...others])
  expect(await keys({ top: 3 })).toEqual(['ahead', 'another day', 'b'])
  clock.ms = ahead.getTime()
  expect(await find()).toEqual([{ key: 'ahead', ...(await quota.getRemaining('ahead')) }, another])
})

test('a bucket that starts partly filled ignores rows of other algorithms', async () => {
  const limiter = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 4 })
  const { quota, find, prefix } = await usedBy({ a: 1 }, limiter)
  await quota.limit('fixed', { limiter: TEN['fixed window'] })
  // So far ahead of the clock, no limiter of this kind has written it.
  await database.script(`insert into rate_limit_durable (prefix, key, tokens, last_refill, expires_at)
    values ('${prefix}', 'ahead', 1, '2126-01-01Z', 'infinity')`)
  expect(await find()).toMatchObject([
    { key: 'a', used: 7 },
    { key: 'fixed', used: 1, isOther: true },
  ])
})

describe('limiterOf', () => {
  const anchored = (day: number) =>
    calendarWindow(10 * day, 'month', { anchor: new Date(Date.UTC(2025, 11, day)) })
  const plans: Record<string, Limiter> = {
    ...Object.fromEntries(
      kinds.flatMap(({ name, limiter, of }) => [
        [name, limiter],
        [`${name}, larger`, of(25, '1h').limiter],
      ]),
    ),
    ...Object.fromEntries([3, 14, 27].map((day) => [`from the ${day}th`, anchored(day)])),
    'partly filled': Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 4 }),
    enterprise: Ratelimit.unlimited(),
  }
  const limiterOf = (key: string) => plans[key] ?? Ratelimit.fixedWindow(0, '1d')

  test('reads each key under its own plan', async () => {
    const { clock, quota, prefix } = await usedBy({})
    for (const [place, [key, limiter]] of Object.entries(plans).entries()) {
      await quota.limit(key, { limiter, rate: 1 + (place % 4), force: true })
    }
    for (const laterMs of [0, HOUR_MS / 2, 5 * HOUR_MS]) {
      clock.advance(laterMs)
      const looks = await Promise.all(
        Object.entries(plans).map(async ([key, limiter]) => ({
          key,
          ...(await quota.getRemaining(key, { limiter })),
        })),
      )
      const expected = looks
        .filter(({ used }) => used > 0)
        .toSorted((one, other) => other.used - one.used || (one.key < other.key ? -1 : 1))
      const options = { prefix, limiterOf, durable: true, clock: clock.now }
      expect(await usage({ db: database.db, ...options }, { top: 100 })).toEqual(expected)
      expect(await usage({ db: database.db, ...options }, { top: 3 })).toEqual(expected.slice(0, 3))
    }
  })

  test('leaves out rows that have ended under their plan, and rows of another plan', async () => {
    const { clock, quota, prefix } = await usedBy({})
    await quota.limit('a', { limiter: TEN['fixed window'] })
    const under = (limiter: Limiter) =>
      usage({ db: database.db, prefix, limiterOf: () => limiter, clock: clock.now, durable: true })
    expect(await under(TEN['fixed window'])).toHaveLength(1)
    expect(await under(TEN['calendar month'])).toEqual([])
    clock.advance(10 * HOUR_MS)
    expect(await under(TEN['fixed window'])).toEqual([])
  })

  test('reads rows of next periods at their own times, however many there are', async () => {
    const { clock, config, quota } = await usedBy({})
    const now = clock.ms
    // The next period begins this many minutes before the hour is over.
    const planOf = (key: string) =>
      calendarWindow(100, 'month', { anchor: new Date(now + HOUR_MS - 60_000 * Number(key)) })
    const ahead = new Quota({ ...config, clock: () => new Date(now + HOUR_MS) })
    const expected = []
    for (let minutes = 10; minutes < 30; minutes++) {
      const [key, limiter] = [String(minutes), planOf(String(minutes))]
      await ahead.limit(key, { limiter, rate: minutes })
      expected.unshift({ key, ...(await quota.getRemaining(key, { limiter })) })
    }
    expect(expected[0]).toMatchObject({ key: '29', used: 29 })
    expect(await usage(quota, { limiterOf: planOf, top: 100 })).toEqual(expected)
  })

  test('reads all pages', async () => {
    const { clock, prefix } = await usedBy({})
    await database.script(`insert into rate_limit_durable (prefix, key, count, window_start, expires_at)
      select '${prefix}', 'key ' || i, i, to_timestamp(${clock.ms} / 1000), 'infinity' from generate_series(1, 2500) i`)
    const { db, statements } = watch(database.db)
    const limiter = Ratelimit.fixedWindow(10_000, '1d')
    const found = await usage(
      { db, prefix, limiterOf: () => limiter, clock: clock.now, durable: true },
      { top: 2500 },
    )
    expect(found.map(({ used }) => used)).toEqual(Array.from({ length: 2500 }, (_, i) => 2500 - i))
    expect(statements).toHaveLength(6)
  })

  test.each([
    ['both', { limiter: TEN['fixed window'], limiterOf } as never, 'INVALID_OPTION'],
    ['what is no function', { limiterOf: 1 as never }, 'INVALID_OPTION'],
  ])('%s is refused', async (_, options, code) => {
    const rows = { db: database.db, prefix: 'refused', durable: true, ...(options as { limiterOf: never }) }
    await expect(usage(rows)).rejects.toMatchObject({ code })
  })

  test('may ask for the plan of a key, in a database or elsewhere', async () => {
    const { quota } = await usedBy({ a: 3, b: 9, c: 1 })
    const smaller = Ratelimit.fixedWindow(4, '10h')
    const planOf = async (key: string) => (key === 'b' ? smaller : TEN['fixed window'])
    expect(await usage(quota, { limiterOf: planOf })).toMatchObject([
      { key: 'b', used: 9, limit: 4 },
      { key: 'a', used: 3, limit: 10 },
      { key: 'c', used: 1, limit: 10 },
    ])
    const isAway = new Error('away')
    const failing = (key: string) => {
      if (key === 'b') throw isAway
      return Promise.reject(isAway)
    }
    await expect(usage(quota, { limiterOf: failing })).rejects.toBe(isAway)
  })

  test.each(['the keys', 'the time', 'the rows'])(
    'nothing is charged if %s cannot be read',
    async (which) => {
      const { config, prefix } = await usedBy({ a: 1 })
      let place = 0
      const { db } = watch(database.db, () => {
        if (place++ === ['the keys', 'the time', 'the rows'].indexOf(which)) throw new Error('broken')
      })
      const found = usage({ db, prefix, limiterOf: () => config.limiter as Limiter, durable: true })
      await expect(found).rejects.toMatchObject({ code: 'UNREACHABLE' })
      expect(place).toBeGreaterThan(0)
    },
  )

  test('an invalid limiter is refused', async () => {
    const { prefix } = await usedBy({ a: 1 })
    const found = usage({ db: database.db, prefix, limiterOf: () => ({}) as never, durable: true })
    await expect(found).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
})

test('rows that limitAll made for a denial are absent', async () => {
  const { quota, keys } = await usedBy({ a: 4 })
  await limitAll([{ ratelimit: quota, key: 'b', rate: 11 }])
  expect(await keys()).toEqual(['a'])
})

describe('an ended window', () => {
  test.each(kinds)('is absent, $name', async ({ limiter }) => {
    const { clock, quota, keys } = await usedBy({ old: 9 }, limiter)
    clock.ms = (await quota.getRemaining('old')).reset - 1
    expect(await keys()).toEqual(['old'])
    await quota.limit('recent')
    clock.advance(1)
    await quota.limit('now', { rate: 2 })
    // The last millisecond of a month is another one.
    const isOver = (await quota.getRemaining('recent')).used === 0
    expect(await keys()).toEqual(isOver ? ['now'] : ['now', 'recent'])
  })

  test('of a sliding window counts with its rest', async () => {
    const { clock, quota, find } = await usedBy({ before: 8 }, TEN['sliding window'])
    clock.advance(15 * HOUR_MS)
    await quota.limit('now', { rate: 5 })
    expect(await find()).toMatchObject([
      { key: 'now', used: 5 },
      { key: 'before', used: 4 },
    ])
  })
})

test('a bucket is sorted by its present use', async () => {
  const { clock, quota, find } = await usedBy({ before: 8 }, TEN['interval bucket'])
  clock.advance(2 * HOUR_MS)
  await quota.limit('now', { rate: 7 })
  expect(await find()).toMatchObject([
    { key: 'now', used: 7 },
    { key: 'before', used: 6 },
  ])
})

test('the table is the one that the limiter writes, or that the description names', async () => {
  const { config, keys, quota } = await usedBy({ durable: 1 })
  const ephemeral = new Quota({ ...config, durable: false } as QuotaConfig)
  await ephemeral.limit('ephemeral')
  const keysOf = async (of: Quota) => (await usage(of)).map(({ key }) => key)
  expect(await keysOf(quota)).toEqual(['durable'])
  expect(await keysOf(ephemeral)).toEqual(['ephemeral'])
  expect(await keys({ durable: true })).toEqual(['durable'])
  expect(await keys({ durable: false })).toEqual(['ephemeral'])
})

test('a class of your own may have a db, and a function limiterOf', async () => {
  class Own extends Quota {
    readonly db = database.db
    limiterOf = () => TEN['calendar month']
  }
  const own = new Own({ db: database.db, limiter: TEN['fixed window'], prefix: 'own class' })
  await own.limit('ada', { rate: 3 })
  expect(await usage(own)).toMatchObject([{ key: 'ada', used: 3, remaining: 7 }])
})

test('of a Ratelimit, the ephemeral table is read, without any option', async () => {
  const api = new Ratelimit({ db: database.db, limiter: TEN['fixed window'], prefix: 'ephemeral usage' })
  await api.limit('ada', { rate: 3 })
  expect(await usage(api)).toMatchObject([{ key: 'ada', used: 3, remaining: 7 }])
})

test('tables of your own are read', async () => {
  const tables = rateLimitTables({ ephemeral: 'own_ephemeral', durable: 'own_durable' })
  const { config, keys } = await usedBy({ shipped: 1 })
  for (const durable of [true, false]) {
    const own = new Quota({ ...config, tables, autoMigrate: true, durable } as QuotaConfig)
    const key = durable ? 'durable' : 'ephemeral'
    await own.limit(key)
    expect(await usage(own)).toMatchObject([{ key }])
  }
  expect(await keys({ tables })).toEqual(['durable'])
  expect(await keys({ tables, durable: false })).toEqual(['ephemeral'])
  expect(await keys()).toEqual(['shipped'])
})

test('in a transaction counts what the transaction has used', async () => {
  const { quota, prefix, clock, config, keys } = await usedBy({ a: 1 })
  await undone(database.db, async (tx) => {
    await quota.limit('b', { rate: 2, tx })
    const rows = { db: tx, prefix, limiter: config.limiter, durable: true, clock: clock.now }
    for (const found of [await usage(quota, { tx }), await usage(rows)]) {
      expect(found).toMatchObject([{ key: 'b' }, { key: 'a' }])
    }
  })
  expect(await keys()).toEqual(['a'])
})

test.each(kinds)('without a clock the time is that of the database, $name', async ({ limiter }) => {
  const { prefix, config } = await usedBy({}, limiter)
  const { clock, ...timed } = config
  const quota = new Quota(timed as QuotaConfig)
  await quota.limit('key', { rate: 3 })
  const found = [{ key: 'key', remaining: 7, limit: 10 }]
  expect(await usage({ db: database.db, prefix, limiter, durable: true })).toMatchObject(found)
  expect(await usage({ db: database.db, prefix, limiterOf: () => limiter, durable: true })).toMatchObject(
    found,
  )
})

// Where the database is another process: PGlite has the clock that is moved here.
describe.runIf(hasServer())('a calendar, where the clock of this machine is wrong', () => {
  afterEach(() => void vi.restoreAllMocks())
  const limiter = calendarWindow(10, 'year')
  const YEAR_MS = 366 * 24 * HOUR_MS

  test.each([
    { wrong: 'two years behind', byMs: -2 * YEAR_MS },
    { wrong: 'two years ahead', byMs: 2 * YEAR_MS },
  ])('finds the period that holds now, $wrong', async ({ byMs }) => {
    const { prefix, config } = await usedBy({}, limiter)
    const { clock, ...timed } = config
    const quota = new Quota(timed as QuotaConfig)
    await quota.limit('key', { rate: 3 })
    await quota.limit('more', { rate: 4 })
    const right = Date.now()
    vi.spyOn(Date, 'now').mockImplementation(() => right + byMs)
    expect(await usage({ db: database.db, prefix, limiter, durable: true }, { top: 1 })).toMatchObject([
      { key: 'more', used: 4 },
    ])
    const found = await usage({ db: database.db, prefix, limiter, durable: true })
    expect(found).toMatchObject([
      { key: 'more', used: 4 },
      { key: 'key', used: 3 },
    ])
    for (const { key, ...rest } of found)
      expect(rest).toMatchObject({ start: (await quota.getRemaining(key)).start })
  })

  test.each([
    { wrong: 'two years behind', byMs: -2 * YEAR_MS, marked: [] },
    { wrong: 'two years ahead', byMs: 2 * YEAR_MS, marked: [{ key: 'then', used: 9, isOther: true }] },
  ])('does not read the wrong period, $wrong', async ({ byMs, marked }) => {
    const { prefix, config } = await usedBy({}, limiter)
    const right = Date.now()
    const then = new Quota({ ...config, clock: () => new Date(right + byMs) })
    await then.limit('then', { rate: 9 })
    vi.spyOn(Date, 'now').mockImplementation(() => right + byMs)
    expect(await usage({ db: database.db, prefix, limiter, durable: true })).toEqual(marked)
  })
})

describe('is refused before any SQL', () => {
  const limiter = TEN['fixed window']
  const good = { prefix: 'refused', limiter, durable: true }
  test.each([
    ['no prefix', { ...good, prefix: '' }, 'INVALID_PREFIX'],
    ['a prefix that is not a string', { ...good, prefix: 1 as never }, 'INVALID_PREFIX'],
    ['no limiter', { prefix: 'refused', durable: true } as never, 'INVALID_OPTION'],
    ['no word on the table', { prefix: 'refused', limiter } as never, 'INVALID_OPTION'],
    ['no limit', { ...good, limiter: Ratelimit.unlimited() }, 'INVALID_OPTION'],
    ['none of them', { ...good, top: 0 }, 'INVALID_OPTION'],
    ['fewer than none', { ...good, top: -1 }, 'INVALID_OPTION'],
    ['half a key', { ...good, top: 1.5 }, 'INVALID_OPTION'],
    ['no number', { ...good, top: Number.NaN }, 'INVALID_OPTION'],
    ['all of them', { ...good, top: Number.POSITIVE_INFINITY }, 'INVALID_OPTION'],
    ['a clock without a time', { ...good, clock: () => new Date(Number.NaN) }, 'INVALID_CLOCK'],
  ])('%s', async (_, { top, ...rows }: typeof good & { top?: number }, code) => {
    const { db, statements } = watch(database.db)
    await expect(usage({ db, ...rows }, { top })).rejects.toMatchObject({ code })
    expect(statements).toEqual([])
  })
})

test('a blocked limit has nothing left', async () => {
  const { find } = await usedBy({ a: 3 })
  const limiter = Ratelimit.fixedWindow(0, '10h')
  expect(await find({ limiter })).toMatchObject([{ key: 'a', limit: 0, remaining: 0, used: 3 }])
})
