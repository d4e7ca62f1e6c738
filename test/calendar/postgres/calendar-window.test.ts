import { afterEach, describe, expect, test, vi } from 'vitest'
import { type CalendarOptions, type CalendarPeriod, calendarWindow } from '../../../src/calendar/index.ts'
import { type Database, type Limiter, limitAll, Ratelimit, RatelimitError } from '../../../src/index.ts'
import { reserveAll } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

const DAY_MS = 86_400_000
const YEAR_MS = 365 * DAY_MS

/** Periods of many kinds that hold the test clock's time, each with the end of the one after it. */
const calendars: readonly {
  readonly name: string
  readonly period: CalendarPeriod
  readonly options?: CalendarOptions
  readonly start: string
  readonly end: string
  readonly nextEnd: string
}[] = [
  {
    name: 'days in UTC',
    period: 'day',
    start: '2026-01-31T00:00Z',
    end: '2026-02-01T00:00Z',
    nextEnd: '2026-02-02T00:00Z',
  },
  {
    name: 'weeks in Kathmandu',
    period: 'week',
    options: { timeZone: 'Asia/Kathmandu' },
    start: '2026-01-26T00:00+05:45',
    end: '2026-02-02T00:00+05:45',
    nextEnd: '2026-02-09T00:00+05:45',
  },
  {
    name: 'months in New York',
    period: 'month',
    options: { timeZone: 'America/New_York' },
    start: '2026-01-01T00:00-05:00',
    end: '2026-02-01T00:00-05:00',
    nextEnd: '2026-03-01T00:00-05:00',
  },
  {
    name: 'months from the 31st in Berlin',
    period: 'month',
    options: { timeZone: 'Europe/Berlin', anchor: new Date('2025-08-31T10:15+02:00') },
    start: '2026-01-31T10:15+01:00',
    end: '2026-02-28T10:15+01:00',
    nextEnd: '2026-03-31T10:15+02:00',
  },
  {
    name: 'quarters from 30 November',
    period: 'month',
    options: { every: 3, anchor: new Date('2025-11-30T08:00Z') },
    start: '2025-11-30T08:00Z',
    end: '2026-02-28T08:00Z',
    nextEnd: '2026-05-30T08:00Z',
  },
  {
    name: 'years in Auckland',
    period: 'year',
    options: { timeZone: 'Pacific/Auckland' },
    start: '2026-01-01T00:00+13:00',
    end: '2027-01-01T00:00+13:00',
    nextEnd: '2028-01-01T00:00+13:00',
  },
]

const january = { limiter: calendarWindow(10, 'month'), start: Date.UTC(2026, 0), end: Date.UTC(2026, 1) }

let prefixes = 0

/** One key of a limiter of its own. */
function setUp(limiter: Limiter, db: Database = database.db) {
  const clock = new TestClock()
  const config = { db, limiter, prefix: `calendar ${prefixes++}`, cleanupProbability: 0 }
  const ratelimit = new Ratelimit({ ...config, clock: clock.now })
  return {
    clock,
    config,
    ratelimit,
    limit: (rate = 1) => ratelimit.limit('key', { rate }),
    /** With the version of the row, so that even writing the same again would show. */
    rows: () => database.rows(`${ROW} where prefix = '${config.prefix}'`),
  }
}

const ROW = `
  select xmin::text, ctid::text, count::float8, prev_count::float8, tokens, last_refill::text,
    (extract(epoch from window_start) * 1000)::float8 as start_ms,
    (extract(epoch from expires_at) * 1000)::float8 as expires_ms
  from rate_limit_ephemeral`

describe.each(calendars)('$name', ({ period, options, ...written }) => {
  const limiter = calendarWindow(10, period, options)
  const start = Date.parse(written.start)
  const end = Date.parse(written.end)
  const nextEnd = Date.parse(written.nextEnd)

  test('count what is used in one, deny to the millisecond until its end, and begin whole', async () => {
    const { clock, limit, ratelimit } = setUp(limiter)
    const allowed = { success: true, limit: 10, retryAfter: 0 }
    expect(await limit(7)).toEqual({ ...allowed, remaining: 3, reset: end, start })
    const denied = { success: false, limit: 10, remaining: 3, reset: end }
    expect(await limit(4)).toEqual({ ...denied, retryAfter: end - clock.ms })
    expect(await ratelimit.getRemaining('key')).toEqual({
      limit: 10,
      remaining: 3,
      reset: end,
      used: 7,
      start,
    })
    clock.ms = end - 1
    expect(await limit(4)).toEqual({ ...denied, retryAfter: 1 })
    clock.advance(1)
    expect(await ratelimit.getRemaining('key')).toEqual({
      ...{ limit: 10, remaining: 10, reset: end, used: 0, start: end },
    })
    expect(await limit(10)).toEqual({
      ...{ ...allowed, remaining: 0, reset: nextEnd, start: end },
      ended: { start, end, used: 7, reserved: 0 },
    })
    expect(await limit()).toMatchObject({ success: false, reset: nextEnd, retryAfter: nextEnd - end })
    clock.ms = nextEnd
    expect(await limit(10)).toMatchObject({ success: true, remaining: 0 })
  })

  test('begin where the calendar says, whenever the first call comes', async () => {
    for (const firstMs of [start, start + 1, end - 1]) {
      const { clock, limit, ratelimit } = setUp(limiter)
      clock.ms = firstMs
      expect(await limit()).toMatchObject({ success: true, reset: end })
      expect(await ratelimit.getRemaining('key')).toMatchObject({ start })
    }
    const { clock, limit, ratelimit } = setUp(limiter)
    clock.ms = start - 1
    expect(await limit()).toMatchObject({ success: true, reset: start })
    expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 1 })
  })

  test('are kept in a row with the count, the start, the highest count, and an expiry after the end', async () => {
    const { clock, limit, rows, ratelimit } = setUp(limiter)
    const expectRow = async (count: number, most: number, [from, to]: readonly [number, number]) => {
      const [row, ...others] = await rows()
      expect(others).toEqual([])
      expect(row).toMatchObject({ count, tokens: most, start_ms: from, prev_count: 0, last_refill: null })
      const expiresMs = Number(row?.['expires_ms'])
      expect(expiresMs).toBeGreaterThanOrEqual(to)
      expect(expiresMs).toBeLessThan(to + (to - from) / 3)
      return expiresMs
    }
    await limit(2)
    await expectRow(2, 2, [start, end])
    await limit(5)
    await expectRow(7, 7, [start, end])
    await limit(-4)
    await expectRow(3, 7, [start, end])
    await limit(1)
    const expiresMs = await expectRow(4, 7, [start, end])

    clock.ms = expiresMs - 1
    expect(await ratelimit.cleanup()).toBe(0)
    clock.ms = end
    await limit(2)
    await expectRow(2, 2, [end, nextEnd])
  })
})

describe('the rules', () => {
  test('a denial writes nothing, and more than the limit is never allowed', async () => {
    const { limit, rows } = setUp(january.limiter)
    const never = { success: false, reset: Number.POSITIVE_INFINITY, retryAfter: Number.POSITIVE_INFINITY }
    expect(await limit(11)).toMatchObject({ ...never, remaining: 10 })
    expect(await rows()).toEqual([])
    await limit(8)
    const before = await rows()
    expect(await limit(11)).toMatchObject({ ...never, remaining: 2 })
    for (let i = 0; i < 3; i++) expect(await limit(3)).toMatchObject({ success: false, remaining: 2 })
    expect(await rows()).toEqual(before)
  })

  test('looks and refunds make no row, and none gives more than the limit', async () => {
    const { clock, limit, rows } = setUp(january.limiter)
    const whole = { success: true, remaining: 10, reset: clock.ms }
    for (const rate of [0, -1, -1e9]) expect(await limit(rate)).toMatchObject(whole)
    expect(await rows()).toEqual([])
    await limit(7)
    expect(await limit(-3)).toMatchObject({ success: true, remaining: 6, reset: january.end })
    expect(await limit(-1e9)).toMatchObject(whole)
    expect(await limit(10)).toMatchObject({ success: true, remaining: 0 })
  })

  test('an expired row can be deleted, and the limit is whole with it and without', async () => {
    const { clock, limit, rows, ratelimit } = setUp(january.limiter)
    await limit(10)
    clock.ms = Number((await rows())[0]?.['expires_ms'])
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 10 })
    expect(await ratelimit.cleanup()).toBe(1)
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 10 })
  })

  test('of nothing denies all forever', async () => {
    const { limit } = setUp(calendarWindow(0, 'month'))
    expect(await limit()).toMatchObject({
      success: false,
      limit: 0,
      remaining: 0,
      retryAfter: Number.POSITIVE_INFINITY,
    })
    expect(await limit(0)).toMatchObject({ success: true, remaining: 0 })
  })

  test.each([1, 500, 20 * DAY_MS])(
    'a clock %i ms behind the start that is stored reads as that start',
    async (behindMs) => {
      const { clock, limit, ratelimit } = setUp(january.limiter)
      clock.ms = january.end
      await limit(10)
      clock.ms = january.end - behindMs
      const denied = await limit()
      expect(denied).toMatchObject({ success: false, remaining: 0, reset: Date.UTC(2026, 2) })
      expect(denied.reset - denied.retryAfter).toBe(january.end)
      expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 0, start: january.end })
      clock.ms = january.end
      expect(await limit()).toMatchObject({ success: false })
    },
  )

  test('about a period behind, in months of different lengths, there is an answer', async () => {
    for (const days of [27, 28, 28.5, 29, 30, 31, 31.5, 32, 33]) {
      const { db, statements } = watch(database.db)
      const { clock, limit } = setUp(january.limiter, db)
      clock.ms = january.end
      await limit(10)
      clock.advance(-days * DAY_MS)
      expect(await limit()).toMatchObject({ limit: 10 })
      expect(statements.length).toBeLessThanOrEqual(2 + 4)
    }
  })

  // In Berlin, clocks are set back on October 25: from the day on, these are the longest periods.
  test.each([
    [45, 'minute', '2026-10-24T06:00+02:00', '2026-10-24T06:45+02:00'],
    [6, 'hour', '2026-10-24T06:00+02:00', '2026-10-24T12:00+02:00'],
    [24, 'hour', '2026-10-23T00:00+02:00', '2026-10-24T00:00+02:00'],
    [1, 'day', '2026-10-25T00:00+02:00', '2026-10-26T00:00+01:00'],
    [1, 'week', '2026-10-19T00:00+02:00', '2026-10-26T00:00+01:00'],
    [1, 'month', '2026-10-01T00:00+02:00', '2026-11-01T00:00+01:00'],
    [1, 'year', '2028-01-01T00:00+01:00', '2029-01-01T00:00+01:00'],
  ] as const)(
    'a clock a whole period behind reads the start that is stored: %d %s',
    async (every, period, start, end) => {
      const limiter = calendarWindow(10, period, { every, timeZone: 'Europe/Berlin' })
      const { clock, limit } = setUp(limiter)
      clock.ms = Date.parse(end)
      await limit(10)
      clock.ms = Date.parse(start)
      expect(await limit()).toMatchObject({ success: false, remaining: 0 })
      clock.ms = Date.parse(end)
      expect(await limit()).toMatchObject({ success: false, remaining: 0 })
    },
  )

  test('clocks half a second apart admit no more than the limit', async () => {
    const { clock, config, limit } = setUp(january.limiter)
    const behind = new Ratelimit({ ...config, clock: () => new Date(clock.ms - 500) })
    clock.ms = january.end - 700
    let admitted = 0
    for (let call = 0; call < 100; call++) {
      const { success } = await (call % 2 === 0 ? limit() : behind.limit('key'))
      if (success) admitted++
      clock.advance(20)
    }
    expect(admitted).toBe(10 + 10)
  })

  test('a period of a row ahead of the clock does not count as the present period', async () => {
    const { db, statements } = watch(database.db)
    const { clock, limit, ratelimit } = setUp(january.limiter, db)
    clock.ms = january.end
    await limit()
    clock.advance(-1)
    await limit()
    clock.advance(YEAR_MS)
    statements.length = 0
    await ratelimit.limit('another key')
    expect(statements).toHaveLength(2)
  })

  test('years ahead heal', async () => {
    const { clock, limit } = setUp(january.limiter)
    clock.advance(10 * YEAR_MS)
    await limit(10)
    clock.advance(-10 * YEAR_MS)
    expect(await limit(10)).toMatchObject({ success: true, remaining: 0, reset: january.end })
    expect(await limit()).toMatchObject({ success: false, reset: january.end })
  })
})

describe("by the database's clock", () => {
  afterEach(() => {
    vi.restoreAllMocks()
  })

  async function databaseMs(): Promise<number> {
    const [row] = await database.rows('select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms')
    return Math.floor(Number(row?.['ms']))
  }

  /** Months that began some days ago: 27 days at least before the next begins. */
  async function recentMonth(daysAgo = 1) {
    const start = (await databaseMs()) - daysAgo * DAY_MS
    return { start, limiter: calendarWindow(10, 'month', { anchor: new Date(start) }) }
  }

  /**
   * This process's clock goes wrong.
   *
   * PGlite takes the time from this process: with it the clock is wrong only until the first statement is sent.
   */
  function wrongBy(days: number) {
    const wrongMs = Date.now() + days * DAY_MS
    const clock = vi.spyOn(Date, 'now').mockReturnValue(wrongMs)
    return watch(database.db, () => {
      if (!hasServer()) clock.mockRestore()
    })
  }

  function limitOf(db: Database, limiter: Limiter, prefix = `calendar ${prefixes++}`) {
    return new Ratelimit({ db, limiter, prefix, cleanupProbability: 0 })
  }

  test('the first check takes two statements and a look one, also where this process is days off in the same month', async () => {
    const { limiter, start } = await recentMonth()
    for (const days of [0, 20]) {
      const { db, statements } = wrongBy(days)
      const ratelimit = limitOf(db, limiter)
      expect(await ratelimit.limit('key', { rate: 7 })).toMatchObject({ success: true, remaining: 3 })
      expect(statements).toHaveLength(2)
      expect(await ratelimit.getRemaining('key')).toMatchObject({ start, used: 7 })
      expect(statements).toHaveLength(3)
    }
  })

  test.each([-400, -40, -2, 40, 400])(
    'this process is %i days off in another month: the answer is right, with few statements more',
    async (days) => {
      const { limiter, start } = await recentMonth()
      const prefix = `calendar ${prefixes++}`
      const before = await databaseMs()
      const first = wrongBy(days)
      const allowed = await limitOf(first.db, limiter, prefix).limit('key', { rate: 7 })
      expect(allowed).toMatchObject({ success: true, remaining: 3 })
      expect(allowed.reset).toBeGreaterThanOrEqual(start + 28 * DAY_MS)
      expect(allowed.reset).toBeLessThanOrEqual(start + 31 * DAY_MS)
      expect(first.statements.length).toBeLessThanOrEqual(6)

      const second = wrongBy(days)
      const denied = await limitOf(second.db, limiter, prefix).limit('key', { rate: 4 })
      expect(denied).toMatchObject({ success: false, remaining: 3, reset: allowed.reset })
      expect(denied.reset - denied.retryAfter).toBeGreaterThanOrEqual(before)
      expect(denied.reset - denied.retryAfter).toBeLessThanOrEqual(await databaseMs())
      expect(second.statements.length).toBeLessThanOrEqual(4)

      const third = wrongBy(days)
      const seen = await limitOf(third.db, limiter, prefix).getRemaining('key')
      expect(seen).toEqual({ limit: 10, remaining: 3, reset: allowed.reset, used: 7, start })
      expect(third.statements.length).toBeLessThanOrEqual(3)
    },
  )

  test('this process is in another month: many keys at once', async () => {
    const months = [await recentMonth(1), await recentMonth(2), await recentMonth(3)]
    const ofKey = (key: number) => months[key % months.length] ?? expect.fail()
    const keys = Array.from({ length: 600 }, (_, key) => key)
    const prefix = `calendar ${prefixes++}`
    const first = wrongBy(60)
    const ratelimit = limitOf(first.db, january.limiter, prefix)
    const answers = await Promise.all(
      keys.map((key) => ratelimit.limit(`key ${key}`, { rate: 7, limiter: ofKey(key).limiter })),
    )
    for (const answer of answers) expect(answer).toMatchObject({ success: true, remaining: 3 })
    // Those of one month share statements; each that is undecided then has its own.
    expect(first.statements.length).toBeLessThanOrEqual(hasServer() ? 12 + 4 * keys.length : 12)
    const stored = await database.rows(`${ROW} where prefix = '${prefix}' order by substr(key, 5)::int`)
    expect(stored.map((row) => row['start_ms'])).toEqual(keys.map((key) => ofKey(key).start))
    expect(stored.map(({ count }) => count)).toEqual(keys.map(() => 7))
  })

  test('this process is in another month: in a transaction', async () => {
    const { limiter, start } = await recentMonth()
    const prefix = `calendar ${prefixes++}`
    await database.db.transaction(async (tx) => {
      const clock = wrongBy(-60)
      const { db, statements } = watch(tx, () => {
        if (!hasServer()) vi.restoreAllMocks()
      })
      const ratelimit = limitOf(clock.db, limiter, prefix)
      expect(await ratelimit.limit('key', { rate: 7, tx: db })).toMatchObject({ success: true, remaining: 3 })
      expect(statements.length).toBeGreaterThanOrEqual(2)
      expect(statements.length).toBeLessThanOrEqual(4)
      expect(clock.statements).toHaveLength(0)
    })
    vi.restoreAllMocks()
    const ratelimit = limitOf(database.db, limiter, prefix)
    expect(await ratelimit.getRemaining('key')).toMatchObject({ start, used: 7 })
  })

  test('this process is in another month: in limitAll', async () => {
    const { limiter, start } = await recentMonth()
    const { db } = wrongBy(60)
    const month = limitOf(db, limiter)
    const second = limitOf(db, Ratelimit.tokenBucket(1, '1h', 10))
    const { success, results } = await limitAll([
      { ratelimit: second, key: 'key' },
      { ratelimit: month, key: 'key', rate: 7 },
    ])
    expect(success).toBe(true)
    expect(results.map(({ remaining }) => remaining)).toEqual([9, 3])
    expect(results[1]?.reset).toBeGreaterThanOrEqual(start + 28 * DAY_MS)
    expect(results[1]?.reset).toBeLessThanOrEqual(start + 31 * DAY_MS)
    vi.restoreAllMocks()
    expect(await month.getRemaining('key')).toMatchObject({ start, used: 7 })
    expect(await second.getRemaining('key')).toMatchObject({ used: 1 })

    const again = wrongBy(60)
    const requests = [
      { ratelimit: limitOf(again.db, Ratelimit.tokenBucket(1, '1h', 10), second.prefix), key: 'key' },
      { ratelimit: limitOf(again.db, limiter, month.prefix), key: 'key', rate: 4 },
    ]
    expect(await limitAll(requests)).toMatchObject({ success: false, denied: [requests[1]] })
    vi.restoreAllMocks()
    expect(await second.getRemaining('key')).toMatchObject({ used: 1 })
  })
})

test('many keys at once, each in the calendar of its plan', async () => {
  const { clock, ratelimit } = setUp(january.limiter)
  const plans = calendars.map(({ period, options, start, end }) => ({
    limiter: calendarWindow(10, period, options),
    start: Date.parse(start),
    end: Date.parse(end),
  }))
  const planOf = (key: number) => plans[key % plans.length] ?? expect.fail()
  const keys = Array.from({ length: 600 }, (_, key) => key)
  const all = (rate: number) =>
    Promise.all(keys.map((key) => ratelimit.limit(`key ${key}`, { rate, limiter: planOf(key).limiter })))

  for (const [key, answer] of (await all(7)).entries()) {
    const { start, end: reset } = planOf(key)
    expect(answer).toEqual({ success: true, limit: 10, remaining: 3, reset, start, retryAfter: 0 })
  }
  for (const [key, answer] of (await all(4)).entries()) {
    const reset = planOf(key).end
    expect(answer).toMatchObject({ success: false, remaining: 3, reset, retryAfter: reset - clock.ms })
  }
  // Some of the periods have ended by then.
  clock.ms = january.end
  for (const [key, answer] of (await all(4)).entries()) {
    expect(answer.success).toBe(planOf(key).end <= clock.ms)
  }
  // Equal calls of one key are one group.
  const same = await Promise.all(Array.from({ length: 20 }, () => ratelimit.limit('same')))
  expect(same.filter(({ success }) => success)).toHaveLength(10)
  expect(same.map(({ remaining }) => remaining)).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0, ...Array(10).fill(0)])
})

describe('another period for one call', () => {
  const day = calendarWindow(10, 'day')
  const month = calendarWindow(100, 'month')

  test('does not make the limiter forget the use in its own period', async () => {
    const { limit, ratelimit } = setUp(day)
    await limit(10)
    expect(await ratelimit.limit('key', { limiter: month })).toMatchObject({ success: true, remaining: 89 })
    expect(await ratelimit.getRemaining('key', { limiter: month })).toMatchObject({ start: january.start })
    expect(await limit()).toMatchObject({ success: false, remaining: 0 })
  })

  test('gives back after the change what was reserved before it, by the present plan', async () => {
    const { ratelimit } = setUp(day)
    const reserved = await ratelimit.reserve('key', { rate: 7 })
    if (!reserved.success) expect.fail()
    await ratelimit.limit('key', { limiter: month })
    await expect(reserved.release()).rejects.toMatchObject({ code: 'OTHER_PLAN' })
    await reserved.release({ limiter: month })
    expect(await ratelimit.getRemaining('key', { limiter: month })).toMatchObject({ used: 1 })
  })

  test('settles its reservation on a row that the limiter began', async () => {
    const { limit, ratelimit } = setUp(day)
    const keys = ['key', 'other', 'both']
    await Promise.all(keys.map((key) => ratelimit.limit(key)))
    const [one, other] = await Promise.all(
      ['key', 'other'].map((key) => ratelimit.reserve(key, { rate: 7, limiter: month })),
    )
    const both = await reserveAll([{ ratelimit, key: 'both', rate: 7, limiter: month }])
    if (!(one?.success && other?.success && both.success)) expect.fail()
    await Promise.all([one.commit(9), other.commit(9)])
    await both.commit([9])
    const used = await ratelimit.getRemainingAll(keys, { limiter: month })
    expect(used.map((each) => each.used)).toEqual([10, 10, 10])
    expect(await limit()).toMatchObject({ success: false })
  })
})

describe('in a transaction', () => {
  test('the charge commits with it, or rolls back', async () => {
    const { limit, ratelimit } = setUp(january.limiter)
    await database.db.transaction(async (tx) => {
      const { db, statements } = watch(tx)
      expect(await ratelimit.limit('key', { rate: 4, tx: db })).toMatchObject({ success: true, remaining: 6 })
      expect(await ratelimit.limit('key', { rate: 7, tx: db })).toMatchObject({
        success: false,
        remaining: 6,
      })
      expect(statements).toHaveLength(3)
    })
    await undone(database.db, async (tx) => {
      expect(await ratelimit.limit('key', { rate: 6, tx })).toMatchObject({ success: true, remaining: 0 })
      expect(await ratelimit.limit('new', { rate: 6, tx })).toMatchObject({ success: true, remaining: 4 })
    })
    expect(await limit(0)).toMatchObject({ remaining: 6 })
    expect(await ratelimit.getRemaining('new')).toMatchObject({ remaining: 10 })
  })

  test('the period may end between its checks', async () => {
    const { clock, ratelimit } = setUp(january.limiter)
    clock.ms = january.end - 1
    await database.db.transaction(async (tx) => {
      expect(await ratelimit.limit('key', { rate: 10, tx })).toMatchObject({
        remaining: 0,
        reset: january.end,
      })
      expect(await ratelimit.limit('key', { tx })).toMatchObject({ success: false, retryAfter: 1 })
      clock.advance(1)
      expect(await ratelimit.limit('key', { rate: 3, tx })).toMatchObject({ success: true, remaining: 7 })
    })
    expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 3, start: january.end })
  })
})

describe('in limitAll with a limit per second', () => {
  function both() {
    const { clock, config, ratelimit: month, rows } = setUp(calendarWindow(3, 'month'))
    const second = new Ratelimit({
      ...config,
      limiter: Ratelimit.tokenBucket(2, '1s', 2),
      prefix: `${config.prefix} second`,
      clock: clock.now,
    })
    const requests = [
      { ratelimit: second, key: 'key' },
      { ratelimit: month, key: 'key' },
    ] as const
    const remaining = async () => [
      (await second.getRemaining('key')).remaining,
      (await month.getRemaining('key')).remaining,
    ]
    return { check: () => limitAll(requests), clock, requests, remaining, rows }
  }

  test('both are consumed, or neither', async () => {
    const { check, clock, remaining, requests, rows } = both()
    for (const left of [1, 0]) {
      const { success, results } = await check()
      expect(success).toBe(true)
      expect(results).toMatchObject([{ remaining: left }, { remaining: left + 1, reset: january.end }])
    }
    const stored = await rows()
    expect(await check()).toMatchObject({ success: false, denied: [requests[0]], retryAfter: 1000 })
    expect(await rows()).toEqual(stored)
    clock.advance(1000)
    expect(await check()).toMatchObject({ success: true })
    clock.advance(1000)
    expect(await check()).toMatchObject({
      ...{ success: false, denied: [requests[1]], retryAfter: january.end - clock.ms },
      results: [
        { success: true, remaining: 2 },
        { success: false, remaining: 0, reset: january.end },
      ],
    })
    expect(await remaining()).toEqual([2, 0])
  })

  test('deny until the month ends, and allow from then on', async () => {
    const { check, clock, remaining, rows } = both()
    await check()
    await check()
    clock.advance(1000)
    await check()
    clock.ms = january.end - 1
    expect(await check()).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await check()).toMatchObject({ success: true, retryAfter: 0 })
    expect(await remaining()).toEqual([1, 2])
    expect(await rows()).toMatchObject([{ count: 1, start_ms: january.end }])
  })
})

test.each([
  ['back', '2026-10-25T00:00Z', '2026-10-25T01:00Z', '2026-10-25T03:00Z'],
  ['forward', '2026-03-28T23:00Z', '2026-03-29T01:00Z', '2026-03-29T02:00Z'],
])('two hours that clocks cut when they go %s are two periods', async (_, first, second, end) => {
  const { clock, limit } = setUp(calendarWindow(5, 'hour', { every: 2, timeZone: 'Europe/Berlin' }))
  clock.ms = Date.parse(first)
  expect(await limit(5)).toMatchObject({ success: true, start: Date.parse(first), reset: Date.parse(second) })
  clock.ms = Date.parse(second) - 1
  expect(await limit(1)).toMatchObject({ success: false, retryAfter: 1 })
  clock.ms = Date.parse(second)
  expect(await limit(5)).toMatchObject({ success: true, start: Date.parse(second), reset: Date.parse(end) })
  expect(await limit(1)).toMatchObject({ success: false, retryAfter: Date.parse(end) - Date.parse(second) })
  clock.ms = Date.parse(end)
  expect(await limit(5)).toMatchObject({ success: true, start: Date.parse(end) })
})

describe('refused before any SQL', () => {
  /** Values that TypeScript would refuse. */
  function untyped<T>(value: unknown): T {
    return value as T
  }

  function codeOf(make: () => Limiter): string | undefined {
    try {
      make()
    } catch (error) {
      if (error instanceof RatelimitError) return error.code
      throw error
    }
    return undefined
  }

  test.each([-1, 1.5, Number.NaN, Number.NEGATIVE_INFINITY, 2 ** 53, untyped<number>('5')])(
    '%s tokens',
    (tokens) => {
      expect(codeOf(() => calendarWindow(tokens, 'month'))).toBe('INVALID_LIMIT')
    },
  )

  test.each([undefined, null, '', 'second', 'months', 'Month', 'toString', '30d', 5])(
    'the period %s',
    (period) => {
      expect(codeOf(() => calendarWindow(5, untyped(period)))).toBe('INVALID_OPTION')
    },
  )

  test.each([
    ['month', 0],
    ['month', -3],
    ['month', 1.5],
    ['month', 101],
    ['month', Number.NaN],
    ['month', untyped<number>('3')],
    ['month', untyped<number>(null)],
    ['hour', 25],
    ['minute', 61],
  ] as const)('every %s: %s', (period, every) => {
    expect(codeOf(() => calendarWindow(5, period, { every }))).toBe('INVALID_OPTION')
  })

  // Intl knows IST, and Temporal does not, for it could be India's, Israel's or Ireland's.
  test.each([null, '', 'Mars/Olympus', 'Europe/Berlin ', 'Europe', 'IST', '2026-01-31T10:15Z', 5, {}])(
    'the time zone %s',
    (timeZone) => {
      const options = { timeZone: untyped<string>(timeZone) }
      expect(codeOf(() => calendarWindow(5, 'month', options))).toBe('INVALID_OPTION')
    },
  )

  test.each([
    { timeZone: ['UTC'] },
    { timeZone: Symbol('UTC') },
    { timeZone: { toString: (): string => 'UTC' } },
  ])('a time zone that is not a string, even if it converts to a known one (%#)', (options) => {
    calendarWindow(5, 'month', { timeZone: 'UTC' })
    expect(codeOf(() => calendarWindow(5, 'month', untyped(options)))).toBe('INVALID_OPTION')
  })

  test.each([
    null,
    new Date(Number.NaN),
    '2026-01-31',
    Date.UTC(2026, 0, 31),
    '2026-01-31T00:00:00.000Z',
    {},
  ])('the anchor %s', (anchor) => {
    // The same calendar without it, and with a right one, are known.
    calendarWindow(5, 'month')
    calendarWindow(5, 'month', { anchor: new Date('2026-01-31') })
    const options = { anchor: untyped<Date>(anchor) }
    expect(codeOf(() => calendarWindow(5, 'month', options))).toBe('INVALID_OPTION')
  })

  test.each([-1, 1])('an anchor more than a hundred years away (%i)', (direction) => {
    vi.useFakeTimers({ toFake: ['Date'] })
    const anchored = (ms: number) => () =>
      calendarWindow(5, 'month', { anchor: new Date(Date.now() + direction * ms) })
    const century = 36_525 * DAY_MS
    expect(codeOf(anchored(century))).toBeUndefined()
    expect(codeOf(anchored(century + 1))).toBe('INVALID_OPTION')
    expect(codeOf(anchored(10 * century))).toBe('INVALID_OPTION')
    vi.useRealTimers()
  })
})

describe('calendars that differ in one thing only', () => {
  const zoned = (timeZone: string) => calendarWindow(5, 'month', { timeZone })
  const anchored = (anchor: string) => calendarWindow(5, 'month', { anchor: new Date(anchor) })
  // In Berlin it is February already.
  const clock = new TestClock(Date.UTC(2026, 0, 31, 23, 30))

  test.each([
    ['the zone', zoned('UTC'), '2026-02-01T00:00Z', zoned('Europe/Berlin'), '2026-03-01T00:00+01:00'],
    [
      'the anchor',
      ...([anchored('2025-05-10T00:00Z'), '2026-02-10T00:00Z'] as const),
      ...([anchored('2025-05-11T00:00Z'), '2026-02-11T00:00Z'] as const),
    ],
    [
      'the period',
      ...([calendarWindow(5, 'week'), '2026-02-02T00:00Z'] as const),
      ...([calendarWindow(5, 'day'), '2026-02-01T00:00Z'] as const),
    ],
  ])('%s: calls in one burst are decided each by its own', async (name, one, end, other, otherEnd) => {
    const options = { db: database.db, clock: clock.now, cleanupProbability: 0, connections: 1 }
    const ratelimit = new Ratelimit({ ...options, limiter: one, prefix: `differ ${name}` })
    for (let times = 1; times <= 2; times++) {
      const answers = await Promise.all([
        ratelimit.limit('a'),
        ratelimit.limit('b', { limiter: other }),
        ratelimit.limit('c'),
      ])
      expect(answers.map(({ remaining }) => remaining)).toEqual([5 - times, 5 - times, 5 - times])
      expect(answers.map(({ reset }) => reset)).toEqual([end, otherEnd, end].map((time) => Date.parse(time)))
    }
    const [first, second] = await Promise.all([
      ratelimit.limit('same'),
      ratelimit.limit('same', { limiter: other }),
    ])
    expect([first.reset, second.reset]).toEqual([Date.parse(end), Date.parse(otherEnd)])
  })
})

test.each([-40, 40])(
  'a process that is %s days ahead of the database learns it, so that later checks are one statement',
  async (days) => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + days * DAY_MS })
    try {
      const { db, statements } = watch(database.db)
      const options = { limiter: calendarWindow(5, 'month'), prefix: `days ${days}` }
      const ratelimit = new Ratelimit({ ...options, db, cleanupProbability: 0 })
      await ratelimit.limit('key')
      for (const remaining of [3, 2]) {
        statements.length = 0
        expect(await ratelimit.limit('key')).toMatchObject({ success: true, remaining })
        expect(statements).toHaveLength(1)
      }
    } finally {
      vi.useRealTimers()
    }
  },
)
