import { describe, expect, test } from 'vitest'
import { type Limiter, Ratelimit, type RatelimitConfig, rateLimitTables } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { examples } from '../../support/limits.ts'

const database = useDatabase()

const HOUR_MS = 3_600_000
const YEAR_MS = 365 * 24 * HOUR_MS

/** Ten in ten seconds, of each algorithm that has seconds. */
const algorithms = examples
  .filter(({ lengths }) => lengths === 'any')
  .map((example) => ({ ...example, limiter: example.of(10, '1s').limiter }))
const windows = [
  { name: 'sliding window', window: Ratelimit.slidingWindow, wholeAfter: 2 },
  { name: 'fixed window', window: Ratelimit.fixedWindow, wholeAfter: 1 },
]
const refills = [{ refill: 'interval' }, { refill: 'continuous' }] as const

describe('a success loses no time', () => {
  test.each(refills)('100 tokens a minute last for one call a second, $refill', async ({ refill }) => {
    const { clock, limit } = setUp(Ratelimit.tokenBucket(100, '1m', 100, { refill }))
    let denied = 0
    for (let second = 0; second < 300; second++) {
      if (!(await limit()).success) denied++
      clock.advance(1000)
    }
    expect(denied).toBe(0)
  })
})

describe('a bucket that starts with less than it holds', () => {
  test.each(refills)('fills from its first check on, which may be denied, $refill', async ({ refill }) => {
    const { clock, limit, ratelimit } = setUp(
      Ratelimit.tokenBucket(1, '1s', 10, { refill, initialTokens: 0 }),
    )
    expect(await limit({ rate: 0 })).toMatchObject({ success: true, remaining: 0 })
    clock.advance(5000)
    expect(await limit({ rate: 2 })).toMatchObject({ success: false, retryAfter: 2000 })
    clock.advance(1999)
    expect(await limit({ rate: 2 })).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await limit({ rate: 2 })).toMatchObject({ success: true, remaining: 0 })
    await ratelimit.resetUsedTokens('key')
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 10 })
  })
})

describe('large and small', () => {
  test('a sliding window beyond 2^53 units times milliseconds', async () => {
    const limit = 7_117_401_341
    const { clock, limit: take } = setUp(Ratelimit.slidingWindow(limit, '30d'))
    expect(await take({ rate: limit })).toMatchObject({ success: true, remaining: 0 })
    const { retryAfter } = await take({ rate: 12_345 })
    clock.advance(retryAfter - 1)
    expect(await take({ rate: 12_345 })).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await take({ rate: 12_345 })).toMatchObject({ success: true })
  })

  test('such a window counts to the unit where doubles do not, also together with a small one', async () => {
    const limit = 7_117_401_341
    const periodMs = 2_592_000_000
    // In doubles, limit * leftMs / periodMs is a whole number; in truth it is a little more.
    const leftMs = 1_123_250_261
    const used = 3_084_345_261
    // No statement of these tables has been built yet, and the small one's come first. If they were prepared,
    // there would be two of each kind, with and without a guard, and another one might be used.
    const own = { tables: rateLimitTables(), preparedStatements: false }
    await setUp(Ratelimit.slidingWindow(10, '1m'), own).limit()
    const { clock, limit: take, ratelimit } = setUp(Ratelimit.slidingWindow(limit, periodMs), own)
    await take({ rate: limit })
    clock.advance(2 * periodMs - leftMs)
    expect(await ratelimit.getRemaining('key')).toMatchObject({ used, remaining: limit - used })
    expect(await take({ rate: limit - used + 1 })).toMatchObject({ success: false })
    expect(await take({ rate: limit - used })).toMatchObject({ success: true, remaining: 0 })
  })

  test("a continuous bucket whose tolerance is smaller than a double's precision", async () => {
    const { clock, limit } = setUp(Ratelimit.tokenBucket(1, '1m', 1e7, { refill: 'continuous' }))
    await limit()
    clock.advance(302)
    await limit()
    clock.advance(62_256)
    const { retryAfter } = await limit({ rate: 1e7 })
    clock.advance(retryAfter - 1)
    expect(await limit({ rate: 1e7 })).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await limit({ rate: 1e7 })).toMatchObject({ success: true })
  })

  test('the tiniest rate fails neither itself nor its neighbours', async () => {
    const { ratelimit } = setUp(Ratelimit.tokenBucket(1, '1s', 10))
    const answers = await Promise.all([
      ratelimit.limit('tiny', { rate: Number.MIN_VALUE }),
      ratelimit.limit('neighbour'),
    ])
    expect(answers).toMatchObject([{ success: true }, { success: true, remaining: 9 }])
  })
})

describe('looking and giving back delay no refill', () => {
  test.each(refills)('rate 0, $refill', async ({ refill }) => {
    const { clock, limit } = setUp(Ratelimit.tokenBucket(1, '10s', 1, { refill }))
    await limit()
    for (let ms = 0; ms < 9900; ms += 900) {
      expect(await limit({ rate: 0 })).toMatchObject({ success: true, remaining: 0 })
      clock.advance(900)
    }
    clock.advance(100)
    expect(await limit()).toMatchObject({ success: true })
  })

  test.each(refills)('a refund, $refill', async ({ refill }) => {
    const { clock, limit } = setUp(Ratelimit.tokenBucket(1, '10s', 5, { refill }))
    await limit({ rate: 5 })
    clock.advance(9000)
    await limit({ rate: -1 })
    clock.advance(1000)
    expect(await limit({ rate: 2 })).toMatchObject({ success: true, remaining: 0 })
  })
})

test.each(algorithms)('denials of many keys in one statement write nothing, $name', async ({ limiter }) => {
  const { clock, ratelimit, rows } = setUp(limiter)
  const keys = ['a', 'b', 'c']
  await Promise.all(keys.map((key) => ratelimit.limit(key, { rate: 10 })))
  const before = await rows()
  expect(before).toHaveLength(keys.length)
  clock.advance(1)
  for (const { success } of await Promise.all(keys.map((key) => ratelimit.limit(key)))) {
    expect(success).toBe(false)
  }
  expect(await rows()).toEqual(before)
})

describe('the reset of a denial is the moment at which the call is allowed', () => {
  test.each(algorithms)('$name', async ({ limiter }) => {
    const { clock, limit } = setUp(limiter)
    await limit({ rate: 4 })
    clock.advance(1300)
    await limit({ rate: (await limit({ rate: 0 })).remaining })
    const { reset } = await limit({ rate: 3 })
    for (; clock.ms < reset; clock.advance(Math.min(700, Math.max(reset - clock.ms - 1, 1)))) {
      const denied = { success: false, reset, retryAfter: reset - clock.ms }
      expect(await limit({ rate: 3 })).toMatchObject(denied)
    }
    expect(await limit({ rate: 3 })).toMatchObject({ success: true })
  })
})

test('cleanup leaves a drained bucket alone until its first refill', async () => {
  const { clock, limit, ratelimit } = setUp(Ratelimit.tokenBucket(100, '1h', 10))
  await limit({ rate: 10 })
  for (let tenth = 0; tenth < 10; tenth++) {
    expect(await ratelimit.cleanup()).toBe(0)
    expect(await limit()).toMatchObject({ success: false })
    clock.advance(HOUR_MS / 10)
  }
  expect(await limit({ rate: 10 })).toMatchObject({ success: true })
})

describe('another limiter on the old rows', () => {
  const changes = algorithms.flatMap((from) =>
    algorithms.filter((to) => from.algorithm !== to.algorithm).map((to) => ({ from, to })),
  )

  test.each(changes)('$from.name, then $to.name: starts fresh and limits', async ({ from, to }) => {
    const { limit } = setUp(from.limiter)
    await limit({ rate: 10 })
    const limiter = to.limiter
    expect(await limit({ limiter, rate: 10 })).toMatchObject({ success: true, remaining: 0 })
    expect(await limit({ limiter })).toMatchObject({ success: false })
    expect(await limit({ limiter: from.limiter, rate: 10 })).toMatchObject({ success: true })
    expect(await limit()).toMatchObject({ success: false })
  })

  test.each(windows)('a shorter $name ends when the old one’s start says', async ({ window }) => {
    const { clock, limit } = setUp(window(10, '1d'))
    await limit({ rate: 10 })
    clock.advance(HOUR_MS)
    const limiter = window(10, '1m')
    expect(await limit({ limiter, rate: 10 })).toMatchObject({ success: true })
    expect(await limit({ limiter })).toMatchObject({ success: false })
  })
})

describe('a denial costs nothing', () => {
  test.each(algorithms)('$name', async ({ limiter }) => {
    const { limit, rows } = setUp(limiter)
    await limit({ rate: 8 })
    const before = await rows()
    for (let i = 0; i < 5; i++)
      expect(await limit({ rate: 3 })).toMatchObject({ success: false, remaining: 2 })
    expect(await rows()).toEqual(before)
    expect(await limit({ rate: 2 })).toMatchObject({ success: true, remaining: 0 })
  })

  test.each(algorithms)(
    'more than the capacity is never allowed and locks nothing, $name',
    async ({ limiter }) => {
      const { clock, limit, rows } = setUp(limiter)
      const never = { limit: 10, reset: Number.POSITIVE_INFINITY, retryAfter: Number.POSITIVE_INFINITY }
      expect(await limit({ rate: 11 })).toEqual({ ...never, success: false, remaining: 10 })
      expect(await rows()).toEqual([])
      await limit({ rate: 4 })
      expect(await limit({ rate: 11 })).toEqual({ ...never, success: false, remaining: 6 })
      clock.advance(5 * YEAR_MS)
      expect(await limit({ rate: 11 })).toMatchObject({ success: false })
      expect(await limit({ rate: 10 })).toMatchObject({ success: true })
    },
  )
})

describe('a refund', () => {
  test.each(algorithms)('ends at the capacity in one step or in many, $name', async ({ limiter }) => {
    const { limit } = setUp(limiter)
    for (const refunds of [[-7], [-8], [-1e9], [-3, -3, -3], [-1, -1e9, -1]]) {
      await limit({ rate: 7 })
      for (const rate of refunds) await limit({ rate })
      expect(await limit({ rate: 10 })).toMatchObject({ success: true, remaining: 0 })
      expect(await limit()).toMatchObject({ success: false })
      await limit({ rate: -10 })
    }
  })

  test('takes from the previous window what the current one did not pay', async () => {
    const { clock, limit } = setUp(Ratelimit.slidingWindow(10, '10s'))
    await limit({ rate: 8 })
    clock.advance(10_000)
    expect(await limit()).toMatchObject({ success: true, remaining: 1 })
    expect(await limit({ rate: -5 })).toMatchObject({ success: true, remaining: 6 })
    clock.advance(5000)
    expect(await limit({ rate: 0 })).toMatchObject({ success: true, remaining: 8 })
  })

  test.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])(
    'of %d is refused',
    async (rate) => {
      for (const { limiter } of algorithms) {
        await expect(setUp(limiter).limit({ rate })).rejects.toMatchObject({ code: 'INVALID_RATE' })
      }
    },
  )

  test('of half a request is refused by algorithms that count whole ones', async () => {
    for (const { limiter, takesFractions } of algorithms) {
      const answer = setUp(limiter).limit({ rate: 0.5 })
      if (takesFractions) expect(await answer).toMatchObject({ success: true, remaining: 9 })
      else await expect(answer).rejects.toMatchObject({ code: 'INVALID_RATE' })
    }
  })
})

describe('at exactly reset', () => {
  test.each(algorithms)('the limit is whole after an allowed call, $name', async ({ limiter }) => {
    const { clock, limit, ratelimit } = setUp(limiter)
    clock.ms = (await limit({ rate: 7 })).reset - 1
    expect((await ratelimit.getRemaining('key')).remaining).toBeLessThan(10)
    clock.advance(1)
    expect(await ratelimit.getRemaining('key')).toMatchObject({
      limit: 10,
      remaining: 10,
      reset: clock.ms,
      used: 0,
    })
    expect(await limit({ rate: 10 })).toMatchObject({ success: true })
  })

  test.each(algorithms)('the call is allowed after a denied one, $name', async ({ limiter }) => {
    const { clock, limit } = setUp(limiter)
    await limit({ rate: 10 })
    clock.ms = (await limit({ rate: 6 })).reset
    expect(await limit({ rate: 6 })).toMatchObject({ success: true, retryAfter: 0 })
  })
})

describe('a number that is not finite', () => {
  const values = refills.flatMap(({ refill }) =>
    ['NaN', 'Infinity', '-Infinity'].map((tokens) => ({ refill, tokens })),
  )

  test.each(values)('$tokens tokens neither admit nor deny forever, $refill', async ({ refill, tokens }) => {
    const { clock, limit, insert } = setUp(Ratelimit.tokenBucket(1, '1s', 3, { refill }))
    await insert(`tokens, last_refill`, `'${tokens}', to_timestamp(${clock.ms - 5000} / 1000.0)`)
    for (const remaining of [2, 1, 0]) expect(await limit()).toMatchObject({ success: true, remaining })
    expect(await limit()).toMatchObject({ success: false, retryAfter: 1000 })
  })
})

describe('clocks', () => {
  test.each(algorithms)('half a second apart admit no more than the limit, $name', async ({ limiter }) => {
    const ahead = setUp(limiter)
    const behind = { clock: new TestClock(ahead.clock.ms - 500) }
    const other = new Ratelimit({ ...ahead.config, clock: behind.clock.now })
    let admitted = 0
    for (let call = 0; call < 150; call++) {
      const { success } = await (call % 2 === 0 ? ahead.ratelimit : other).limit('key')
      if (success) admitted++
      ahead.clock.advance(200)
      behind.clock.advance(200)
    }
    // In 30 seconds.
    expect(admitted).toBeLessThanOrEqual(10 + 30)
    expect(admitted).toBeGreaterThanOrEqual(28)
  })

  test.each(algorithms)('ten years ahead heal, $name', async ({ limiter }) => {
    const { clock, limit } = setUp(limiter)
    clock.advance(10 * YEAR_MS)
    await limit({ rate: 10 })
    clock.advance(-10 * YEAR_MS)
    expect(await limit({ rate: 10 })).toMatchObject({ success: true, remaining: 0 })
    expect(await limit()).toMatchObject({ success: false })
    clock.advance(20_000)
    expect(await limit({ rate: 10 })).toMatchObject({ success: true })
  })

  test.each(algorithms)(
    'ahead by a whole period are the time, by more they are not, $name',
    async ({ limiter }) => {
      const { clock, limit } = setUp(limiter)
      const writtenMs = clock.ms
      await limit({ rate: 10 })
      clock.ms = writtenMs - 10_000
      const denied = await limit()
      expect(denied).toMatchObject({ success: false })
      expect(denied.reset - denied.retryAfter).toBe(writtenMs)
      clock.advance(-1)
      expect(await limit({ rate: 10 })).toMatchObject({ success: true })
    },
  )
})

describe('fractions of a token', () => {
  test.each([
    { rate: 0.1, tokens: 0.3, times: 3 },
    { rate: 0.1, tokens: 1, times: 10 },
    { rate: 1.1, tokens: 3.3, times: 3 },
  ])('$rate fits into $tokens $times times and no more', async ({ rate, tokens, times }) => {
    for (const { refill } of refills) {
      const { limit } = setUp(Ratelimit.tokenBucket(1, '1d', tokens, { refill }))
      for (let i = 0; i < times; i++) expect(await limit({ rate })).toMatchObject({ success: true })
      expect(await limit({ rate })).toMatchObject({ success: false })
      // The tolerance is a billionth, whatever happens.
      expect(await limit({ rate: 1e-8 })).toMatchObject({ success: false })
    }
  })
})

describe('a key without a row', () => {
  test.each(algorithms)(
    'gets no row from rate 0, refunds, denials, looks or resets, $name',
    async ({ limiter }) => {
      const { limit, ratelimit, rows } = setUp(limiter)
      for (const rate of [0, -1, -1e9]) {
        expect(await limit({ rate })).toMatchObject({ success: true, remaining: 10 })
      }
      await limit({ rate: 11 })
      await ratelimit.getRemaining('key')
      await ratelimit.resetUsedTokens('key')
      expect(await rows()).toEqual([])
    },
  )
})

describe('a changed limit', () => {
  test.each(algorithms)('applies to what is stored, $name', async ({ limiter, of: ofSize, keeps }) => {
    const { limit } = setUp(limiter)
    await limit({ rate: 7 })
    const of = (tokens: number) => ofSize(tokens, '1s').limiter
    const left = keeps === 'what is left' ? [3, 3, 2] : [13, 0, 0]
    expect(await limit({ rate: 0, limiter: of(20) })).toMatchObject({ limit: 20, remaining: left[0] })
    expect(await limit({ rate: 0, limiter: of(5) })).toMatchObject({ limit: 5, remaining: left[1] })
    expect(await limit({ rate: 0, limiter: of(2) })).toMatchObject({ limit: 2, remaining: left[2] })
    expect(await limit({ rate: 0 })).toMatchObject({ limit: 10, remaining: 3 })
  })

  test.each(windows)('that is smaller reads as full, and the count is kept, $name', async ({ window }) => {
    const { limit } = setUp(window(10, '10s'))
    await limit({ rate: 8 })
    const limiter = window(5, '10s')
    expect(await limit({ rate: -1, limiter })).toMatchObject({ success: true, remaining: 0 })
    expect(await limit({ rate: 0 })).toMatchObject({ remaining: 3 })
    expect(await limit({ rate: -3, limiter })).toMatchObject({ success: true, remaining: 1 })
  })

  test('that is smaller than the previous count lets that fade from the limit', async () => {
    const { clock, limit } = setUp(Ratelimit.slidingWindow(10, '10s'))
    await limit({ rate: 8 })
    clock.advance(12_000)
    const limiter = Ratelimit.slidingWindow(5, '10s')
    expect(await limit({ rate: 2, limiter })).toMatchObject({
      success: false,
      remaining: 1,
      retryAfter: 2000,
    })
    await limit({ rate: 3 })
    const smallest = Ratelimit.slidingWindow(2, '10s')
    expect(await limit({ limiter: smallest })).toMatchObject({ success: false, remaining: 0 })
  })

  test.each(algorithms)(
    'that is a thousandth denies for its own periods only, $name',
    async ({ of: ofSize }) => {
      const { limit } = setUp(ofSize(10_000, '1s').limiter)
      await limit({ rate: 10_000 })
      const { limiter } = ofSize(10, '1s')
      const { success, retryAfter } = await limit({ limiter })
      expect(success).toBe(false)
      expect(retryAfter).toBeLessThanOrEqual(2 * limiter.params.periodMs)
    },
  )

  test('that is smaller takes the excess from a bucket when something is charged', async () => {
    const { limit } = setUp(Ratelimit.tokenBucket(1, '1s', 10))
    await limit({ rate: 1 })
    expect(await limit({ limiter: Ratelimit.tokenBucket(1, '1s', 5) })).toMatchObject({ remaining: 4 })
    expect(await limit({ rate: 0 })).toMatchObject({ remaining: 4 })
  })

  test.each(windows)('with a longer $name goes on from the old start', async ({ window, wholeAfter }) => {
    const { clock, limit } = setUp(window(10, '1m'))
    const startMs = clock.ms
    await limit({ rate: 10 })
    clock.advance(60_000)
    const { reset } = await limit({ rate: 10, limiter: window(10, '1h') })
    expect(reset).toBe(startMs + wholeAfter * HOUR_MS)
  })

  test('changes nothing about an interval that has begun', async () => {
    const { clock, limit } = setUp(Ratelimit.tokenBucket(1, '10s', 5))
    await limit({ rate: 5 })
    clock.advance(4000)
    const limiter = Ratelimit.tokenBucket(2, '5s', 5)
    expect(await limit({ rate: 2, limiter })).toMatchObject({ success: false, retryAfter: 1000 })
    clock.advance(1000)
    expect(await limit({ rate: 2, limiter })).toMatchObject({ success: true, remaining: 0 })
  })
})

describe('expires_at', () => {
  // The grid: an eighth of the period, whole milliseconds, a second at least.
  const grids = [
    { limiter: Ratelimit.tokenBucket(1, '1s', 3), gridMs: 1000 },
    { limiter: Ratelimit.tokenBucket(7, '1111ms', 100), gridMs: 2083 },
    { limiter: Ratelimit.tokenBucket(100, '1h', 10), gridMs: 450_000 },
    { limiter: Ratelimit.tokenBucket(7, '1m', 100, { refill: 'continuous' }), gridMs: 107_142 },
    { limiter: Ratelimit.gcra(1000, '1h', { burst: 3 }), gridMs: 1350 },
    { limiter: Ratelimit.slidingWindow(10, '7s'), gridMs: 1000 },
    { limiter: Ratelimit.slidingWindow(10, '1d'), gridMs: 10_800_000 },
    { limiter: Ratelimit.fixedWindow(10, '77777ms'), gridMs: 9722 },
  ]

  test.each(grids)(
    'lies on a grid of $gridMs ms, where the row first equals a new one',
    async ({ limiter, gridMs }) => {
      const { clock, limit, expiresMs, ratelimit } = setUp(limiter)
      for (const rate of [1, 2, -1]) {
        const { reset } = await limit({ rate })
        expect((await expiresMs()) % gridMs).toBe(0)
        expect(await expiresMs()).toBeGreaterThanOrEqual(reset)
        expect(await expiresMs()).toBeLessThan(reset + gridMs)
        clock.advance(1234)
      }
      const whole = limiter.params.limit
      clock.ms = (await expiresMs()) - 1
      expect(await ratelimit.cleanup()).toBe(0)
      clock.advance(1)
      expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: whole })
      expect(await ratelimit.cleanup()).toBe(1)
      expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: whole })
    },
  )

  test.each(refills)('stays as it is within a cell, $refill', async ({ refill }) => {
    // Full again after as many seconds as tokens are gone: cells of 100 seconds.
    const { clock, limit, expiresMs } = setUp(Ratelimit.tokenBucket(1, '1s', 800, { refill }))
    clock.ms = Math.ceil(clock.ms / 100_000) * 100_000
    const startMs = clock.ms
    for (const [used, cells] of [
      [1, 1],
      [50, 1],
      [100, 1],
      [101, 2],
      [200, 2],
      [800, 8],
    ] as const) {
      await limit({ rate: used - 800 + (await limit({ rate: 0 })).remaining })
      expect((await expiresMs()) - startMs).toBe(cells * 100_000)
    }
  })

  test.each(refills)(
    'never comes for a bucket that starts with less than it holds, $refill',
    async ({ refill }) => {
      const { clock, limit, ratelimit, rows } = setUp(
        Ratelimit.tokenBucket(1, '1s', 10, { refill, initialTokens: 5 }),
      )
      await limit({ rate: 5 })
      expect((await rows())[0]).toMatchObject({ stored: { expires_at: expect.stringMatching(/^25\d{4}-/) } })
      clock.advance(YEAR_MS)
      expect(await ratelimit.cleanup()).toBe(0)
      expect(await limit({ rate: 10 })).toMatchObject({ success: true })
    },
  )
})

test('a clock that fails lets a reset of a partly filled bucket change nothing', async () => {
  const clock = new TestClock()
  let fails = false
  const limiter = Ratelimit.tokenBucket(1, '1s', 10, { initialTokens: 2 })
  const failing = () => {
    if (fails) throw new Error('no time')
    return clock.now()
  }
  const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'no time', clock: failing })
  await ratelimit.limit('key')
  clock.advance(10_000)
  fails = true
  await expect(ratelimit.resetUsedTokens('key')).rejects.toMatchObject({ code: 'INVALID_CLOCK' })
  fails = false
  expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 10 })
})

let prefixes = 0

/** One key of a limiter of its own. */
function setUp(limiter: Limiter, own: Pick<RatelimitConfig, 'tables' | 'preparedStatements'> = {}) {
  const prefix = `rules ${prefixes++}`
  const clock = new TestClock()
  const config = { db: database.db, limiter, prefix, cleanupProbability: 0, clock: clock.now, ...own }
  const ratelimit = new Ratelimit(config)
  // With the version of each row, so that even writing the same again would show.
  const rows = () =>
    database.rows(
      `select xmin::text, ctid::text, to_jsonb(stored) as stored from rate_limit_ephemeral stored where prefix = '${prefix}'`,
    )
  return {
    clock,
    config,
    ratelimit,
    rows,
    limit: (options: { rate?: number; limiter?: Limiter } = {}) => ratelimit.limit('key', options),
    insert: (columns: string, values: string) =>
      database.script(
        `insert into rate_limit_ephemeral (prefix, key, ${columns}, expires_at) values ('${prefix}', 'key', ${values}, 'infinity')`,
      ),
    expiresMs: async () => {
      const [row] = await database.rows(
        `select extract(epoch from expires_at) * 1000 as ms from rate_limit_ephemeral where prefix = '${prefix}'`,
      )
      return Number(row?.['ms'])
    },
  }
}
