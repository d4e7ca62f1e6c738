import { pgSchema } from 'drizzle-orm/pg-core'
import { describe, expect, test } from 'vitest'
import { rateLimitTables } from '../../../schema/index.ts'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Database, type Limiter, limitAll, Ratelimit } from '../../../src/index.ts'
import { Quota, type QuotaConfig, reserveAll } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const clock = new TestClock()

function limitOf(prefix: string, limiter: Limiter, durable = false): Quota {
  const options = { db: database.db, limiter, prefix, clock: clock.now, cleanupProbability: 0 }
  return new Quota({ ...options, durable })
}

/** With the version of each row, so that even writing the same again would show. */
async function rows(prefix: string): Promise<unknown[]> {
  const found = await Promise.all(
    ['rate_limit_ephemeral', 'rate_limit_durable'].map((table) =>
      database.rows(
        `select xmin::text, ctid::text, * from ${table} where prefix like '${prefix}%' order by prefix, key`,
      ),
    ),
  )
  return found.flat()
}

/** Four limits in both tables, of three algorithms. */
function four(prefix: string) {
  return [
    { ratelimit: limitOf(`${prefix} second`, Ratelimit.tokenBucket(10, '1s', 10)), key: 'org' },
    { ratelimit: limitOf(`${prefix} month`, Ratelimit.fixedWindow(20, '30d'), true), key: 'org', rate: 5 },
    { ratelimit: limitOf(`${prefix} minute`, Ratelimit.slidingWindow(3, '1m')), key: 'ip' },
    { ratelimit: limitOf(`${prefix} other`, Ratelimit.slidingWindow(4, '1m')), key: 'account' },
  ] as const
}

describe.each([
  ['alone', (requests: Parameters<typeof limitAll>[0]) => limitAll(requests)],
  [
    'joined',
    (requests: Parameters<typeof limitAll>[0]) => database.db.transaction((tx) => limitAll(requests, { tx })),
  ],
] as const)('%s', (way, check) => {
  test('all are consumed', async () => {
    const requests = four(`${way} all`)
    const { success, denied, retryAfter, results } = await check(requests)
    expect({ success, denied, retryAfter }).toEqual({ success: true, denied: [], retryAfter: 0 })
    expect(results.map(({ remaining }) => remaining)).toEqual([9, 15, 2, 3])
    for (const [place, { ratelimit, key }] of requests.entries()) {
      expect(await ratelimit.getRemaining(key)).toMatchObject({
        limit: results[place]?.limit,
        remaining: results[place]?.remaining,
        reset: results[place]?.reset,
      })
    }
  })

  test('none is consumed if one denies, and no row is made or changed', async () => {
    const requests = four(`${way} none`)
    const [second, month, minute, other] = requests
    for (let i = 0; i < 3; i++) await minute.ratelimit.limit('ip')
    await month.ratelimit.limit('org')
    const before = await rows(`${way} none`)
    const { success, denied, results, retryAfter } = await check(requests)
    expect(success).toBe(false)
    expect(denied).toEqual([minute])
    expect(results.map((result) => [result.success, result.remaining])).toEqual([
      [true, 10],
      [true, 19],
      [false, 0],
      [true, 4],
    ])
    expect(retryAfter).toBe(results[2]?.retryAfter)
    expect(await rows(`${way} none`)).toEqual(before)
    expect(await second.ratelimit.getRemaining('org')).toMatchObject({ remaining: 10 })
    expect(await other.ratelimit.getRemaining('account')).toMatchObject({ remaining: 4 })
  })

  test('retryAfter is the earliest moment at which all pass', async () => {
    const short = limitOf(`${way} short`, Ratelimit.fixedWindow(1, '1m'))
    const long = limitOf(`${way} long`, Ratelimit.tokenBucket(1, '1h', 1), true)
    const requests = [
      { ratelimit: short, key: 'key' },
      { ratelimit: long, key: 'key' },
    ]
    expect(await check(requests)).toMatchObject({ success: true })
    clock.advance(7)
    const { denied, retryAfter } = await check(requests)
    expect(denied).toEqual(requests)
    expect(retryAfter).toBe(3_600_000 - 7)
    clock.advance(retryAfter - 1)
    expect(await check(requests)).toMatchObject({ success: false, retryAfter: 1, denied: [requests[1]] })
    clock.advance(1)
    expect(await check(requests)).toMatchObject({ success: true })
  })

  test('retryAfter is Infinity if one never passes', async () => {
    const limit = limitOf(`${way} never`, Ratelimit.fixedWindow(2, '1m'))
    const { retryAfter } = await check([
      { ratelimit: limit, key: 'a', rate: 3 },
      { ratelimit: limit, key: 'b' },
    ])
    expect(retryAfter).toBe(Number.POSITIVE_INFINITY)
  })

  test('the same row twice is added up', async () => {
    const limit = limitOf(`${way} twice`, Ratelimit.fixedWindow(5, '1m'))
    const twice = [
      { ratelimit: limit, key: 'key', rate: 2 },
      { ratelimit: limit, key: 'key', rate: 1 },
    ]
    expect((await check(twice)).results.map(({ remaining }) => remaining)).toEqual([2, 2])
    const { denied, results } = await check(twice)
    expect(denied).toEqual(twice)
    expect(results.map(({ remaining }) => remaining)).toEqual([2, 2])
  })

  test('one prefix and key in both tables are two rows', async () => {
    const limiter = Ratelimit.fixedWindow(5, '1m')
    const ephemeral = limitOf(`${way} both`, limiter)
    const durable = limitOf(`${way} both`, limiter, true)
    const larger = limitOf(`${way} both`, Ratelimit.fixedWindow(9, '1m'), true)
    const usedOf = async () => [
      (await ephemeral.getRemaining('key')).used,
      (await durable.getRemaining('key')).used,
    ]
    const both = [
      { ratelimit: ephemeral, key: 'key', rate: 1 },
      { ratelimit: durable, key: 'key', rate: 3 },
    ]
    expect((await check(both)).results.map(({ remaining }) => remaining)).toEqual([4, 2])
    expect(await usedOf()).toEqual([1, 3])
    const { success, denied } = await check(both.toReversed())
    expect({ success, denied }).toEqual({ success: false, denied: [both[1]] })
    expect(await usedOf()).toEqual([1, 3])
    // Different limits are no contradiction there.
    const others = [
      { ratelimit: ephemeral, key: 'key', rate: 4 },
      { ratelimit: larger, key: 'key', rate: 6 },
    ]
    expect((await check(others)).results.map(({ limit, remaining }) => [limit, remaining])).toEqual([
      [5, 0],
      [9, 0],
    ])
    expect(await usedOf()).toEqual([5, 9])
  })

  test('one key under two prefixes, and two keys of one prefix, are two rows', async () => {
    const limiter = Ratelimit.fixedWindow(5, '1m')
    const [one, other] = [limitOf(`${way} one`, limiter), limitOf(`${way} other`, limiter)]
    const requests = [
      { ratelimit: one, key: 'key', rate: 1 },
      { ratelimit: other, key: 'key', rate: 2 },
      { ratelimit: other, key: 'another', rate: 3 },
    ]
    expect((await check(requests)).results.map(({ remaining }) => remaining)).toEqual([4, 3, 2])
    for (const { ratelimit, key, rate } of requests) {
      expect(await ratelimit.getRemaining(key)).toMatchObject({ used: rate })
    }
  })

  test('keys of one prefix with plans of their own are decided each by its own', async () => {
    const limit = limitOf(`${way} plans`, Ratelimit.fixedWindow(5, '1m'))
    const limiter = Ratelimit.fixedWindow(100, '1m')
    const requests = [
      { ratelimit: limit, key: 'small', rate: 5 },
      { ratelimit: limit, key: 'large', rate: 50, limiter },
      { ratelimit: limit, key: 'bucket', limiter: Ratelimit.tokenBucket(1, '1m', 7) },
    ]
    const { success, results } = await check(requests)
    expect(success).toBe(true)
    expect(results.map(({ limit, remaining }) => [limit, remaining])).toEqual([
      [5, 0],
      [100, 50],
      [7, 6],
    ])
  })

  test('one key gets a refund and another is charged at the same time', async () => {
    const limit = limitOf(`${way} back`, Ratelimit.fixedWindow(5, '1m'))
    for (const key of ['a', 'b']) await limit.limit(key, { rate: 3 })
    const requests = [1, -2, 0].map((rate, i) => ({ ratelimit: limit, key: 'abc'[i] as string, rate }))
    for (const all of [requests, requests.toReversed()]) {
      expect(await check(all)).toMatchObject({ success: true })
    }
    expect(await limit.getRemaining('a')).toMatchObject({ used: 5 })
    expect(await limit.getRemaining('b')).toMatchObject({ used: 0 })
    expect(await limit.getRemaining('c')).toMatchObject({ used: 0 })
  })

  describe('calls for one row of limiters that report differently', () => {
    const limiter = Ratelimit.fixedWindow(10, '1m')
    function rowOf(name: string) {
      const options = { db: database.db, limiter, prefix: `${way} ${name}`, clock: clock.now }
      const of = (reporting: Pick<QuotaConfig, 'dryRun' | 'thresholds'>) =>
        new Quota({ ...options, ...reporting, durable: false, cleanupProbability: 0 })
      return { of, plain: of({}) }
    }

    test.each([
      ['first', [true, false]],
      ['last', [false, true]],
    ])('a dry run that is %s does not lift the limit of the other', async (name, dryRuns) => {
      const { of, plain } = rowOf(`dry ${name}`)
      const requests = dryRuns.map((dryRun) => ({ ratelimit: of({ dryRun }), key: 'key', rate: 6 }))
      const { success, denied, results } = await check(requests)
      expect({ success, denied }).toEqual({ success: false, denied: requests })
      for (const result of results) expect(result).not.toHaveProperty('wouldDeny')
      expect(await plain.getRemaining('key')).toMatchObject({ used: 0 })
    })

    test('dry runs only deny nothing and charge nothing', async () => {
      const { of, plain } = rowOf('dry only')
      const requests = [1, 2].map(() => ({ ratelimit: of({ dryRun: true }), key: 'key', rate: 6 }))
      const { success, results } = await check(requests)
      expect(success).toBe(true)
      for (const result of results) expect(result).toMatchObject({ wouldDeny: { success: false } })
      expect(await plain.getRemaining('key')).toMatchObject({ used: 0 })
    })

    test('the first reports the thresholds of all, each once', async () => {
      const { of } = rowOf('thresholds')
      const requests = [[0.5], [0.5, 0.8], [0.9], []].map((thresholds) => ({
        ratelimit: of({ thresholds }),
        ...{ key: 'key', rate: 2 },
      }))
      const { results } = await check(requests)
      expect(results.map((result) => ('crossed' in result ? result.crossed : undefined))).toEqual([
        [0.5, 0.8],
        ...[undefined, undefined, undefined],
      ])
    })
  })

  test('a charge finds the row as a refund of the same list leaves it', async () => {
    const limit = limitOf(`${way} sum`, Ratelimit.fixedWindow(5, '1m'))
    await limit.limit('key', { rate: 4 })
    const sum = (...rates: number[]) => check(rates.map((rate) => ({ ratelimit: limit, key: 'key', rate })))
    expect(await sum(3, -2)).toMatchObject({ success: true })
    expect(await limit.getRemaining('key')).toMatchObject({ used: 5 })
    expect(await sum(1, -3)).toMatchObject({ success: true })
    expect(await limit.getRemaining('key')).toMatchObject({ used: 3 })
    expect(await sum(3, -3)).toMatchObject({ success: true })
    expect(await sum(-1, 4)).toMatchObject({ success: false })
    expect(await limit.getRemaining('key')).toMatchObject({ used: 3 })
    expect(await sum(-4, 6)).toMatchObject({ success: false })
    expect(await limit.getRemaining('key')).toMatchObject({ used: 3 })
    expect(await sum(-4, 5)).toMatchObject({ success: true })
    expect(await limit.getRemaining('key')).toMatchObject({ used: 5 })
  })

  test('amounts whose sum is too large are refused before any SQL', async () => {
    const limit = limitOf(`${way} large`, Ratelimit.fixedWindow(5, '1m'))
    const request = { ratelimit: limit, key: 'key', rate: Number.MAX_SAFE_INTEGER }
    await expect(check([request, request])).rejects.toMatchObject({ code: 'INVALID_RATE' })
  })

  test('a look and a refund leave no empty row', async () => {
    const limit = limitOf(`${way} look`, Ratelimit.fixedWindow(5, '1m'))
    const { success } = await check([
      { ratelimit: limit, key: 'look', rate: 0 },
      { ratelimit: limit, key: 'refund', rate: -1 },
      { ratelimit: limit, key: 'takes' },
    ])
    expect(success).toBe(true)
    expect(await rows(`${way} look`)).toMatchObject([{ key: 'takes', count: expect.anything() }])
  })

  test('a forced call goes into debt, or is not charged if another is denied', async () => {
    const requests = four(`${way} forced`).map((request) => ({ ...request, rate: 3, force: true }))
    const [second, month, minute, other] = requests
    if (!second || !month || !minute || !other) throw new Error('no requests')
    for (const used of [3, 6]) {
      expect(await check(requests)).toMatchObject({ success: true, denied: [], retryAfter: 0 })
      for (const { ratelimit, key } of requests) {
        expect(await ratelimit.getRemaining(key)).toMatchObject({ used })
      }
    }
    const before = await rows(`${way} forced`)
    const denying = { ...minute, force: false }
    expect(await check([second, denying, month, other])).toMatchObject({
      ...{ success: false, denied: [denying] },
      results: [{ success: true, remaining: 4 }, { success: false }, { remaining: 14 }, { remaining: 0 }],
    })
    expect(await rows(`${way} forced`)).toEqual(before)
    const after = [minute, { ...minute, key: 'fits', force: false }]
    expect(await check(after)).toMatchObject({ success: true })
    expect(await minute.ratelimit.getRemaining('ip')).toMatchObject({ used: 9 })
  })

  test("a call's own limit", async () => {
    const limit = limitOf(`${way} plan`, Ratelimit.fixedWindow(5, '1m'))
    const limiter = Ratelimit.fixedWindow(100, '1m')
    const { results } = await check([{ ratelimit: limit, key: 'key', rate: 50, limiter }])
    expect(results).toMatchObject([{ success: true, limit: 100, remaining: 50 }])
  })
})

test('a reservation of reserveAll is settled with its costs, in a transaction too', async () => {
  const requests = four('settled')
  const usedNow = () =>
    Promise.all(requests.map(async ({ ratelimit, key }) => (await ratelimit.getRemaining(key)).used))
  const [one, other] = [await reserveAll(requests), await reserveAll(requests)]
  if (!one.success || !other.success) throw new Error('denied')
  expect(await usedNow()).toEqual([2, 10, 2, 2])
  await one.commit([4, 0, 1, 9])
  expect(await usedNow()).toEqual([5, 5, 2, 10])
  await undone(database.db, async (tx) => {
    expect(await other.release({ tx })).toMatchObject([{ remaining: 6 }, { remaining: 20 }, {}, {}])
  })
  expect(await usedNow()).toEqual([5, 5, 2, 10])
})

test('a look and a refund are never denied, even of a limit that is exceeded', async () => {
  const limit = limitOf('exceeded', Ratelimit.slidingWindow(10, '1m'))
  await limit.limit('key', { rate: 10 })
  clock.advance(60_000)
  await limit.limit('key', { rate: 0 })
  const limiter = Ratelimit.slidingWindow(1, '1m')
  for (const rate of [0, -1]) {
    expect(await limitAll([{ ratelimit: limit, key: 'key', rate, limiter }])).toMatchObject({ success: true })
  }
})

test('a look and a refund do not delay the charges of their list', async () => {
  const debt = limitOf('in debt', Ratelimit.fixedWindow(10, '1m'))
  const charged = limitOf('next to debt', Ratelimit.fixedWindow(10, '1m'))
  await debt.limit('key', { rate: 25, force: true })
  for (const [rate, used] of [
    [0, 1],
    [-1, 2],
  ] as const) {
    const requests = [
      { ratelimit: debt, key: 'key', rate },
      { ratelimit: charged, key: 'key' },
    ]
    expect(await limitAll(requests)).toMatchObject({ success: true })
    expect(await charged.getRemaining('key')).toMatchObject({ used })
  }
})

test('a denial is one statement and writes no row, and with a new key it is two', async () => {
  const { db, statements } = watch(database.db)
  const common = { db, clock: clock.now, cleanupProbability: 0 }
  const window = new Ratelimit({ ...common, limiter: Ratelimit.fixedWindow(1, '1m'), prefix: 'denies 1' })
  const empty = Ratelimit.tokenBucket(1, '1m', 5, { initialTokens: 3 })
  const filling = new Ratelimit({ ...common, limiter: empty, prefix: 'denies 2' })
  const [first, second] = [window, filling].map((ratelimit) => ({ ratelimit, key: 'key' })) as [
    { ratelimit: Quota; key: string },
    { ratelimit: Quota; key: string },
  ]
  expect(await limitAll([first, second])).toMatchObject({ success: true })
  const before = await rows('denies')
  statements.length = 0
  expect(await limitAll([first])).toMatchObject({ success: false })
  expect(statements).toHaveLength(1)
  clock.advance(1_000)
  expect(await limitAll([first, second])).toMatchObject({ success: false })
  expect(statements).toHaveLength(2)
  const fresh = {
    ratelimit: new Ratelimit({ ...common, limiter: window.limiter, prefix: 'denies 3' }),
    key: 'key',
  }
  expect(await limitAll([first, fresh])).toMatchObject({
    success: false,
    results: [{ success: false }, { success: true, remaining: 1 }],
  })
  expect(statements).toHaveLength(4)
  expect(await rows('denies')).toEqual(before)
})

test('a bucket that starts with less than it holds fills from its first check on', async () => {
  const empty = limitOf('starts', Ratelimit.tokenBucket(1, '1s', 5, { initialTokens: 0 }))
  const requests = [{ ratelimit: empty, key: 'key' }]
  expect(await limitAll(requests)).toMatchObject({ success: false, retryAfter: 1000 })
  clock.advance(1000)
  expect(await limitAll(requests)).toMatchObject({ success: true })
})

test('a look at such a bucket does not begin it, whether the others are allowed or denied', async () => {
  const empty = limitOf('looked at', Ratelimit.tokenBucket(1, '1s', 5, { initialTokens: 0 }))
  const window = limitOf('looked at, too', Ratelimit.fixedWindow(1, '1m'))
  const requests = [
    { ratelimit: empty, key: 'key', rate: 0 },
    { ratelimit: window, key: 'key' },
  ]
  for (const success of [true, false]) {
    expect(await limitAll(requests)).toMatchObject({ success })
    expect(await rows('looked at')).toHaveLength(1)
  }
})

test('such a bucket begins to fill when the others deny, and a look says that it does not yet', async () => {
  const limiter = Ratelimit.tokenBucket(1, '1s', 5, { initialTokens: 2 })
  const [filling, looked] = ['begins', 'not yet'].map((prefix) => limitOf(prefix, limiter)) as [Quota, Quota]
  const full = limitOf('full', Ratelimit.fixedWindow(0, '1m'))
  const { results } = await limitAll([
    { ratelimit: filling, key: 'key' },
    { ratelimit: looked, key: 'key', rate: 0 },
    { ratelimit: full, key: 'key' },
  ])
  expect(results).toMatchObject([
    { success: true, remaining: 2, reset: clock.ms + 3000 },
    { success: true, remaining: 2, reset: Infinity },
    { success: false },
  ])
  for (const [place, ratelimit] of [filling, looked].entries()) {
    expect((await ratelimit.getRemaining('key')).reset).toBe(results[place]?.reset)
  }
})

test('a row that is ahead of the clock is taken from at its own time, and the others at theirs', async () => {
  const limit = limitOf('ahead', Ratelimit.fixedWindow(5, '1h'))
  clock.advance(60_000)
  const { reset } = await limit.limit('ahead')
  clock.advance(-60_000)
  const keys = ['ahead', 'fresh']
  for (const order of [keys, keys.toReversed()]) {
    const { results } = await limitAll(order.map((key) => ({ ratelimit: limit, key })))
    const resets = results.map((result) => result.reset)
    expect(resets).toEqual(order.map((key) => (key === 'ahead' ? reset : reset - 60_000)))
    await limit.resetUsedTokens('fresh')
  }
})

test('it takes at the time of its look, even if the clock goes back in between', async () => {
  const limiter = Ratelimit.fixedWindow(1, '1m')
  const later = new Date(clock.ms + 60_000)
  const times: Date[] = []
  const timed = () => times.shift() ?? clock.now()
  const limits = ['one', 'other'].map((name) => {
    const prefix = `back ${name}`
    return new Ratelimit({ db: database.db, limiter, prefix, clock: timed, cleanupProbability: 0 })
  })
  for (const limit of limits) await limit.limit('key')
  // Before any SQL, and at the look at each. Nothing else reads it.
  times.push(later, later, later, later)
  const requests = limits.map((ratelimit) => ({ ratelimit, key: 'key' }))
  const taken = await database.db.transaction((tx) => limitAll(requests, { tx }))
  expect(taken.results.map(({ success, reset }) => [success, reset])).toEqual(
    limits.map(() => [true, later.getTime() + 60_000]),
  )
  expect(times).toEqual([])
})

test('a tx that is not a transaction is refused', async () => {
  const limit = limitOf('no tx', Ratelimit.fixedWindow(5, '1m'))
  const tx = database.db
  const calls = [
    () => limitAll([{ ratelimit: limit, key: 'key' }], { tx }),
    () => limit.limit('key', { tx }),
    () => limit.getRemaining('key', { tx }),
    () => limit.resetUsedTokens('key', { tx }),
  ]
  for (const call of calls) await expect(call()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(await rows('no tx')).toEqual([])
})

test('a rollback of the caller undoes it', async () => {
  const requests = four('undone')
  await undone(database.db, async (tx) => {
    expect(await limitAll(requests, { tx })).toMatchObject({ success: true })
  })
  expect(await rows('undone')).toEqual([])
})

test.each([1, 2, 6, 20])(
  '%d new rows are two statements, and known ones one, alone and joined',
  async (limits) => {
    const { db, statements } = watch(database.db)
    const limiter = Ratelimit.fixedWindow(5, '1m')
    const requests = Array.from({ length: limits }, (_, i) => ({
      ratelimit: new Quota({
        ...{ db, limiter, prefix: `trips ${limits} ${i % 2}`, cleanupProbability: 0 },
        durable: i % 3 === 0,
      }),
      key: `key ${i}`,
    }))
    const count = async (tx?: Database) => {
      const before = statements.length
      expect(await limitAll(requests, { tx })).toMatchObject({ success: true })
      return statements.length - before
    }
    expect(await count()).toBe(2)
    expect(await count()).toBe(1)
    expect(await db.transaction((tx) => count(tx))).toBe(1)
  },
)

test('where most keys are new, a list is one statement', async () => {
  const { db, statements } = watch(database.db)
  const common = { db, limiter: Ratelimit.fixedWindow(5, '1m'), cleanupProbability: 0 }
  const limits = [new Ratelimit({ ...common, prefix: 'new' }), new Ratelimit({ ...common, prefix: 'newer' })]
  const lists = 16
  for (const round of ['all are new', 'all are known']) {
    statements.length = 0
    for (let i = 0; i < lists; i++) {
      const { success, results } = await limitAll(limits.map((ratelimit) => ({ ratelimit, key: `key ${i}` })))
      expect({ success, left: results.map(({ remaining }) => remaining) }).toEqual({
        success: true,
        left: round === 'all are new' ? [4, 4] : [3, 3],
      })
    }
    // A few look first, because it may change.
    expect(statements.length).toBeLessThan(lists * 1.25)
  }
})

describe('is refused', () => {
  const limiter = Ratelimit.fixedWindow(5, '1m')
  const refused = () => limitOf('refused', limiter)
  test('without requests', async () => {
    await expect(limitAll([])).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
  test('with limiters of different databases', async () => {
    const elsewhere = new Ratelimit({ db: watch(database.db).db, limiter, prefix: 'refused' })
    const requests = [refused(), elsewhere].map((ratelimit) => ({ ratelimit, key: 'key' }))
    await expect(limitAll(requests)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
  test('with one row under two limits', async () => {
    const requests = [refused(), limitOf('refused', Ratelimit.fixedWindow(6, '1m'))].map((ratelimit) => ({
      ratelimit,
      key: 'key',
    }))
    await expect(limitAll(requests)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await rows('refused')).toEqual([])
  })
  test('with one row under two calendars that differ in their time zone only', async () => {
    const requests = ['UTC', 'Europe/Berlin'].map((timeZone) => ({
      ratelimit: limitOf('refused', calendarWindow(5, 'month', { timeZone })),
      key: 'key',
    }))
    await expect(limitAll(requests)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
  test('with more than 50 rows', async () => {
    const ratelimit = refused()
    const requests = Array.from({ length: 51 }, (_, i) => ({ ratelimit, key: `key ${i}` }))
    await expect(limitAll(requests)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
  test('with a row under two names of its table', async () => {
    const tables = rateLimitTables({ schema: pgSchema('public_too') })
    const common = { db: database.db, limiter, prefix: 'refused' }
    const requests = [refused(), new Ratelimit({ ...common, tables })].map((ratelimit) => ({
      ratelimit,
      key: 'key',
    }))
    await expect(limitAll(requests)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
  test('with bad input, before any SQL', async () => {
    const { db, statements } = watch(database.db)
    const watched = new Ratelimit({ db, limiter, prefix: 'refused' })
    const good = { ratelimit: watched, key: 'key' }
    await expect(limitAll([good, { ...good, key: '' }])).rejects.toMatchObject({ code: 'INVALID_KEY' })
    await expect(limitAll([good, { ...good, rate: 0.5 }])).rejects.toMatchObject({ code: 'INVALID_RATE' })
    expect(statements).toEqual([])
  })
})

test('limitAll sweeps afterwards like a single check, and not inside a transaction', async () => {
  const { db, statements } = watch(database.db)
  const limiter = Ratelimit.fixedWindow(5, '1m')
  const limit = new Ratelimit({ db, limiter, prefix: 'sweeps', cleanupProbability: 1 })
  await limitAll([{ ratelimit: limit, key: 'key' }])
  await expect.poll(() => statements.filter((text) => text.includes('delete from'))).toHaveLength(1)
  await database.db.transaction((tx) => limitAll([{ ratelimit: limit, key: 'key' }], { tx }))
  expect(statements.filter((text) => text.includes('delete from'))).toHaveLength(1)
})

test('each limiter sweeps by its own clock', async () => {
  const sweeps: Promise<unknown>[] = []
  const common = { db: database.db, limiter: Ratelimit.fixedWindow(5, '1m'), cleanupProbability: 1 }
  const waitUntil = (work: Promise<unknown>) => void sweeps.push(work)
  const requests = [() => new Date(), clock.now].map((now, place) => ({
    ratelimit: new Ratelimit({ ...common, prefix: `own clock ${place}`, clock: now, waitUntil }),
    key: 'key',
  }))
  await limitAll(requests)
  await Promise.all(sweeps)
  expect(sweeps).toHaveLength(2)
  expect(await rows('own clock')).toHaveLength(2)
})
