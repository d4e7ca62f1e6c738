import { sql } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { beforeEach, describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { type Database, type Limiter, Ratelimit, rateLimitTables, tableSql } from '../../../src/index.ts'
import { closePeriods, type PlanOf, Quota, type QuotaConfig } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { creditsOn } from '../../support/credits.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { JANUARY, kinds, type QuotaUnderTest, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const periodic = kinds.filter(({ plan }) => plan.rules.endOf)
const { 'calendar month': month } = TEN

const dialect = new PgDialect()

/** Drivers answer with the rows, or with an object that has them. */
function rowsOf(answer: { readonly rows?: readonly unknown[] } | readonly unknown[]): readonly unknown[] {
  return 'rows' in answer && answer.rows ? answer.rows : (answer as readonly unknown[])
}

type Options = { limit?: number; after?: string }

/** Closes in a transaction of its own, as a process without the quota does. */
function close({ clock, prefix }: QuotaUnderTest, limiter: Limiter, options: Options = {}) {
  const rows = { db: database.db, prefix, limiter, durable: false, clock: clock.now }
  return database.db.transaction((tx) => closePeriods(rows, { tx, ...options }))
}

/** Closes what each key has used under its plan. */
function closeEach({ quota }: QuotaUnderTest, limiterOf: PlanOf) {
  return database.db.transaction((tx) => closePeriods(quota, { tx, limiterOf }))
}

describe.each(periodic)('$name', ({ limiter }) => {
  let under: QuotaUnderTest
  let period: { readonly start: number; readonly end: number; readonly reserved?: number }
  beforeEach(async () => {
    under = quotaOn(database, limiter, { keepEnded: true })
    const { reset } = await under.quota.limit('b', { rate: 7 })
    await under.quota.limit('a', { rate: 25, force: true })
    const reserved = limiter.algorithm.settled ? { reserved: 0 } : {}
    period = { start: (await under.quota.getRemaining('b')).start ?? 0, end: reset, ...reserved }
  })

  test('hands out each period once and removes its row, when it is over and not before', async () => {
    const { clock, quota, rows } = under
    clock.ms = period.end - 1
    expect(await close(under, limiter)).toEqual([])
    clock.advance(1)
    await quota.limit('c')
    expect(await close(under, limiter)).toEqual([
      { key: 'a', ...period, used: 25 },
      { key: 'b', ...period, used: 7 },
    ])
    expect(await rows()).toHaveLength(1)
    expect(await close(under, limiter)).toEqual([])
    expect(await quota.limit('a')).not.toHaveProperty('ended')
  })

  test('hands them out in the order of the keys, however Postgres finds them', async () => {
    under.clock.ms = period.end
    const closed = await database.db.transaction(async (tx) => {
      for (const scan of ['indexscan', 'bitmapscan'])
        await tx.execute(sql.raw(`set local enable_${scan} = off`))
      return closePeriods(under.quota, { tx, limit: 1 })
    })
    expect(closed.map(({ key }) => key)).toEqual(['a'])
  })

  test('leaves the rows of another prefix', async () => {
    const other = quotaOn(database, limiter, { keepEnded: true })
    await other.quota.limit('a', { rate: 3 })
    await other.quota.limit('b')
    under.clock.ms = period.end
    expect(await close(under, limiter)).toMatchObject([{ used: 25 }, { used: 7 }])
    other.clock.ms = period.end
    expect(await close(other, limiter)).toMatchObject([{ used: 3 }, { used: 1 }])
  })

  test('leaves a row that a call renews after it was found', async () => {
    const { clock, quota } = under
    clock.ms = period.end
    const closed = await database.db.transaction((tx) => {
      const { db } = watch(tx, async (text) => {
        if (text.includes('delete from')) await quota.limit('a', { tx })
      })
      return closePeriods(quota, { tx: db })
    })
    expect(closed).toEqual([{ key: 'b', ...period, used: 7 }])
    expect(await quota.getRemaining('a')).toMatchObject({ used: 1 })
  })

  test('leaves a period that a call has reported', async () => {
    under.clock.ms = period.end
    expect(await under.quota.limit('a')).toMatchObject({ ended: { ...period, used: 25 } })
    expect(await close(under, limiter)).toEqual([{ key: 'b', ...period, used: 7 }])
  })

  test('takes back the removal when the transaction is rolled back', async () => {
    const { clock, quota } = under
    clock.ms = period.end
    await undone(database.db, async (tx) => {
      await closePeriods(quota, { tx })
    })
    expect(await close(under, limiter)).toHaveLength(2)
  })

  test('hands out at most `limit`, and the rest the next time', async () => {
    under.clock.ms = period.end
    expect(await close(under, limiter, { limit: 1 })).toMatchObject([{ key: 'a' }])
    expect(await close(under, limiter, { limit: 2 })).toMatchObject([{ key: 'b' }])
  })

  test('leaves the keys up to `after`', async () => {
    under.clock.ms = period.end
    expect(await close(under, limiter, { after: 'b' })).toEqual([])
    expect(await close(under, limiter, { after: 'a' })).toMatchObject([{ key: 'b' }])
    expect(await close(under, limiter)).toMatchObject([{ key: 'a' }])
  })

  test('reads past a page of rows, and takes odd keys as they are', async () => {
    const { clock, quota } = under
    const odd = ['"quoted"', 'back\\slash', '{a,b}', 'é', '💡', "'", ' ', 'NULL']
    await Promise.all(odd.map((key) => quota.limit(key)))
    clock.ms = period.end
    // Those of the new period come first.
    const many = Array.from({ length: 1100 }, (_, i) => `! ${i}`)
    await Promise.all(many.map((key) => quota.limit(key)))
    expect((await close(under, limiter)).map(({ key }) => key).toSorted()).toEqual(
      [...odd, 'a', 'b'].toSorted(),
    )
    expect(await close(under, limiter)).toEqual([])
  })

  test('keepEnded keeps the row from sweeps', async () => {
    const { clock, quota } = under
    await quota.limit('bucket', { limiter: TEN['interval bucket'] })
    await quota.limit('sliding', { limiter: TEN['sliding window'] })
    clock.advance(90 * 86_400_000)
    for (let i = 0; i < 20; i++) await quota.limit('other')
    expect(await quota.cleanup()).toBe(2)
    expect(await quota.limit('a')).toMatchObject({ ended: { ...period, used: 25 } })
    expect(await close(under, limiter)).toEqual([{ key: 'b', ...period, used: 7 }])
  })

  test.runIf(hasServer())('leaves out rows that another transaction holds, and waits for none', async () => {
    const { clock, quota } = under
    clock.ms = period.end
    await database.db.transaction(async (tx) => {
      await quota.limit('a', { tx })
      expect(await close(under, limiter)).toEqual([{ key: 'b', ...period, used: 7 }])
    })
    clock.ms += 90 * 86_400_000
    for (const key of 'bcdef') await quota.limit(key)
    clock.ms += 90 * 86_400_000
    await database.db.transaction(async (tx) => {
      const first = await closePeriods(quota, { tx, limit: 2 })
      expect(first.map(({ key }) => key)).toEqual(['a', 'b'])
      expect((await close(under, limiter, { limit: 3 })).map(({ key }) => key)).toEqual(['c', 'd', 'e'])
    })
    expect(await close(under, limiter)).toMatchObject([{ key: 'f' }])
  })
})

test.each([
  ['a quarter', 'month', { every: 3 }, '2026-01-01T00:00Z', '2026-04-01T00:00Z'],
  [
    'a half year from the 31st, in Tokyo',
    'month',
    { every: 6, timeZone: 'Asia/Tokyo', anchor: new Date('2025-08-30T15:00Z') },
    '2026-02-27T15:00Z',
    '2026-08-30T15:00Z',
  ],
  [
    'a fortnight from a payday, where clocks change in it',
    'week',
    { every: 2, timeZone: 'Europe/Berlin', anchor: new Date('2026-01-09T08:00Z') },
    '2026-03-20T08:00Z',
    '2026-04-03T07:00Z',
  ],
] as const)(
  '%s is one period, and in the next one what is carried over counts',
  async (_, unit, options, from, to) => {
    const period = calendarWindow(10, unit, options)
    const under = quotaOn(database, period, { keepEnded: true })
    const [start, end] = [Date.parse(from), Date.parse(to)]
    under.clock.ms = start + 5 * 86_400_000
    await under.quota.limit('a', { rate: 7 })
    under.clock.ms = end - 1
    expect(await under.quota.limit('a', { rate: 4 })).toMatchObject({ success: false, retryAfter: 1 })
    expect(await close(under, period)).toEqual([])
    under.clock.advance(1)
    expect(await close(under, period)).toEqual([{ key: 'a', start, end, used: 7, reserved: 0 }])

    const carrying = calendarWindow(10, unit, { ...options, rollover: { max: 5 } })
    const { clock, quota } = quotaOn(database, carrying)
    clock.ms = start
    await quota.limit('a', { rate: 7 })
    clock.ms = end
    expect(await quota.limit('a', { rate: 13 })).toMatchObject({ success: true, limit: 13, remaining: 0 })
  },
)

test('each key is read under its own plan, and a plan without periods leaves its key', async () => {
  const plans: Record<string, Limiter> = {
    day: calendarWindow(10, 'day'),
    month,
    hours: TEN['fixed window'],
    bucket: TEN['interval bucket'],
    sliding: TEN['sliding window'],
    unlimited: Ratelimit.unlimited(),
  }
  const under = quotaOn(database, month, { keepEnded: true })
  const { clock, quota } = under
  for (const [key, limiter] of Object.entries(plans)) await quota.limit(key, { limiter })
  await quota.limit('unlimited')
  const opened = clock.ms
  const limiterOf = async (key: string) => plans[key] ?? month
  clock.ms = opened + 10 * 3_600_000 - 1
  expect(await closeEach(under, limiterOf)).toEqual([])
  clock.advance(1)
  expect(await closeEach(under, limiterOf)).toMatchObject([{ key: 'hours', start: opened, end: clock.ms }])
  clock.ms = Date.UTC(2026, 1, 1)
  expect((await closeEach(under, limiterOf)).map(({ key }) => key)).toEqual(['day', 'month'])
  clock.advance(400 * 86_400_000)
  expect(await closeEach(under, limiterOf)).toEqual([])
})

test('it reads as many rows as it may close, and then twice as many each time', async () => {
  const { clock, quota } = quotaOn(database, month, { keepEnded: true })
  const year = calendarWindow(10, 'year')
  for (const key of 'abcdefghi') await quota.limit(key)
  clock.ms = JANUARY.end
  const pages: number[] = []
  const closed = await database.db.transaction((tx) => {
    const watched: Database = {
      ...{ transaction: tx.transaction, refreshMaterializedView: undefined, rollback: undefined },
      execute: async (query) => {
        const answer = (await tx.execute(query)) as never
        if (/limit\s+\(/.test(dialect.sqlToQuery(query).sql)) pages.push(rowsOf(answer).length)
        return answer
      },
    }
    // What ends with the month is behind five that go on.
    const limiterOf = (key: string) => (key > 'e' ? month : year)
    return closePeriods(quota, { tx: watched, limit: 1, limiterOf })
  })
  expect(closed.map(({ key }) => key)).toEqual(['f'])
  expect(pages).toEqual([1, 2, 4])
})

test('open reservations are reported apart from what was used, and a late commit changes nothing', async () => {
  const { clock, quota, ...under } = quotaOn(database, month, { keepEnded: true })
  const charge = async (key: string) => {
    await quota.limit(key, { rate: 1 })
    const open = await quota.reserve(key, { rate: 4 })
    const settled = await quota.reserve(key, { rate: 3 })
    if (!open.success || !settled.success) throw new Error('denied')
    await settled.commit(2)
    return open
  }
  const [closed, called] = [await charge('closed'), await charge('called')]
  const period = { start: Date.UTC(2026, 0, 1), end: Date.UTC(2026, 1, 1), used: 7, reserved: 4 }
  clock.ms = period.end - 1
  expect(await close({ clock, quota, ...under }, month)).toEqual([])
  clock.advance(1)
  expect(await quota.limit('called')).toMatchObject({ ended: period })
  expect(await close({ clock, quota, ...under }, month)).toEqual([{ key: 'closed', ...period }])
  for (const [key, late] of Object.entries({ closed, called })) {
    const { used } = await quota.getRemaining(key)
    await late.commit(1)
    expect(await quota.getRemaining(key)).toMatchObject({ used })
  }
})

test('an invalid plan of a key is refused, and nothing is closed', async () => {
  const under = quotaOn(database, month, { keepEnded: true })
  await under.quota.limit('key')
  under.clock.ms = Date.UTC(2026, 1, 1)
  const none = closeEach(under, () => undefined as never)
  await expect(none).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(await close(under, month)).toHaveLength(1)
})

test('a row of another algorithm, one without a time and one ahead of the clock are left', async () => {
  const under = quotaOn(database, month)
  const { clock, prefix } = under
  await database.rows(
    `insert into rate_limit_ephemeral
    select $1, key, count, prev, start::timestamptz, tokens, null, now() from (values
      ('fixed', 1, null::bigint, '2020-01-01', null::float8), ('sliding', 1, 0, '2020-01-01', null),
      ('infinite', 1, 0, '-infinity', 1), ('empty', null, 0, '2020-01-01', 1), ('ahead', 1, 0, '2036-01-01', 1),
      ('negative', -1, 0, '2020-01-01', 1)) as rows (key, count, prev, start, tokens)`,
    [prefix],
  )
  expect(await close(under, month)).toMatchObject([{ key: 'negative', used: 0 }])
  expect(clock.ms).toBeLessThan(Date.UTC(2036, 0))
})

test('the row of credits is neither handed out nor removed, whatever the clock says', async () => {
  const under = quotaOn(database, month, { keepEnded: true, durable: true })
  const { clock, prefix, quota } = under
  const { credits, rows } = creditsOn(database, { prefix, clock: clock.now })
  for (const key of ['unused', 'used', 'spent', 'debt']) await credits.grant(key, 10)
  await credits.limit('used', { rate: 4 })
  await credits.limit('spent', { rate: 10 })
  await credits.limit('debt', { rate: 25, force: true })
  await credits.limit('never granted', { rate: 3, force: true })
  const before = await rows()
  const plans = [month, TEN['fixed window'], calendarWindow(10, 'day')]
  for (const years of [0, 1, 100, 7000]) {
    clock.advance(years * 365 * 86_400_000)
    for (const plan of plans) expect(await closeEach(under, () => plan)).toEqual([])
    for (const plan of plans) expect(await close(under, plan)).toEqual([])
    expect(await quota.cleanup()).toBe(0)
    expect(await new Quota({ ...under.config, keepEnded: false } as QuotaConfig).cleanup()).toBe(0)
  }
  expect(await rows()).toEqual(before)
  expect(await credits.getRemaining('used')).toMatchObject({ limit: 10, used: 4 })
})

test('without an injected clock the time is that of the database', async () => {
  const { clock, prefix, quota } = quotaOn(database, month)
  await quota.limit('past')
  const present = new Ratelimit({ db: database.db, limiter: month, prefix, cleanupProbability: 0 })
  await present.limit('present')
  const close = () => database.db.transaction((tx) => closePeriods(present, { tx }))
  expect(await close()).toMatchObject([{ key: 'past' }])
  expect(clock.ms).toBeLessThan(Date.now())
})

test.each([
  ['outside of a transaction', {}, {}],
  ['without a transaction', {}, { tx: undefined }],
  ['without a plan', { limiter: undefined }, {}],
  ['with two', { limiterOf: () => month }, {}],
  ['with a plan of each key in the wrong place', {}, { limiterOf: () => month }],
  ['with a plan without periods', { limiter: TEN['sliding window'] }, {}],
  ['with no limit at all', { limiter: Ratelimit.unlimited() }, {}],
  ['without a table', { durable: undefined }, {}],
  ['for none', {}, { limit: 0 }],
  ['for a part', {}, { limit: 1.5 }],
  ['after what is no key', {}, { after: 5 }],
  ['with an invalid clock', { clock: () => new Date(Number.NaN) }, {}],
])('%s it is refused', async (what, rows, options) => {
  const { db } = database
  const wrong = { db, prefix: 'p', limiter: month, durable: true, ...rows } as never
  const code = what.includes('clock') ? 'INVALID_CLOCK' : 'INVALID_OPTION'
  const refused = db.transaction((tx) =>
    closePeriods(wrong, { tx: what.startsWith('outside') ? db : tx, ...options } as never),
  )
  await expect(refused).rejects.toMatchObject({ code })
})

test.each<readonly [string, Pick<QuotaConfig, 'tables' | 'hashKeys'> & { readonly durable?: false }]>([
  ['in the durable table', {}],
  ['in the other table', { durable: false }],
  ['in tables of its own', { tables: rateLimitTables({ ephemeral: 'own_quick', durable: 'own_slow' }) }],
  ['of hashed keys', { hashKeys: 'a secret of 20 letters' }],
])('a quota closes its own rows: %s', async (where, options) => {
  const { tables, durable = true } = options
  for (const statement of tables ? tableSql(tables) : []) await database.script(statement)
  const clock = new TestClock()
  const config = {
    db: database.db,
    limiter: month,
    prefix: where,
    clock: clock.now,
    keepEnded: true,
  } as const
  const quota = new Quota({ ...config, ...options })
  const twin = new Quota({ ...config, ...options, durable: !durable })
  for (const each of [quota, twin]) await each.limit('org', { rate: each === quota ? 7 : 1 })
  const close = (of: Quota) => database.db.transaction((tx) => closePeriods(of, { tx }))
  expect(await close(quota)).toEqual([])
  clock.ms = JANUARY.end
  const key = options.hashKeys ? expect.not.stringContaining('org') : 'org'
  const { start, end } = JANUARY
  expect(await close(quota)).toEqual([{ key, start, end, used: 7, reserved: 0 }])
  expect(await close(quota)).toEqual([])
  expect(await close(twin)).toEqual([{ key, start, end, used: 1, reserved: 0 }])
})

test('credits are refused', async () => {
  const { credits, prefix } = creditsOn(database)
  const dated = new Credits({ db: database.db, prefix: `${prefix} dated`, dated: true })
  for (const of of [credits, dated]) {
    const refused = (more: object) =>
      database.db.transaction((tx) => closePeriods(of as never, { tx, ...more }))
    await expect(refused({})).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(refused({ limiterOf: () => month })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  }
})

test('a limiter that sweeps leaves the rows of a limiter with keepEnded', async () => {
  // The statements of these tables have not been built yet.
  const tables = rateLimitTables()
  const { clock, config, quota } = quotaOn(database, month, { tables })
  expect(await quota.cleanup()).toBe(0)
  await quota.limit('key')
  clock.advance(90 * 86_400_000)
  expect(await new Quota({ ...config, keepEnded: true } as QuotaConfig).cleanup()).toBe(0)
  expect(await quota.cleanup()).toBe(1)
})
