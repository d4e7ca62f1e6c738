import { describe, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { gate } from '../../support/gate.ts'
import { examples } from '../../support/limits.ts'
import { isTake, watch } from '../../support/watch.ts'

const database = useDatabase()
const quiet = { db: database.db, cleanupProbability: 0 }

test('the same key under two prefixes is two rows', async () => {
  const options = { ...quiet, db: database.db, limiter: Ratelimit.fixedWindow(1, '1m') }
  expect(await new Ratelimit({ ...options, prefix: 'one' }).limit('key')).toMatchObject({ success: true })
  expect(await new Ratelimit({ ...options, prefix: 'other' }).limit('key')).toMatchObject({ success: true })
  expect(await new Ratelimit({ ...options, prefix: 'one' }).limit('key')).toMatchObject({ success: false })
})

test('durable is another table', async () => {
  const options = { db: database.db, limiter: Ratelimit.fixedWindow(1, '1m'), prefix: 'tables' }
  await new Ratelimit(options).limit('key')
  expect(await new Ratelimit({ ...options, durable: true }).limit('key')).toMatchObject({ success: true })
  for (const table of ['rate_limit_ephemeral', 'rate_limit_durable']) {
    expect(await database.rows(`select count from ${table} where prefix = 'tables'`)).toHaveLength(1)
  }
})

test('a reset is of one key of one prefix in one table', async () => {
  const options = { ...quiet, db: database.db, limiter: Ratelimit.fixedWindow(5, '1m') }
  const own = new Ratelimit({ ...options, prefix: 'reset' })
  const others = [
    { ratelimit: own, key: 'other' },
    { ratelimit: new Ratelimit({ ...options, prefix: 'reset of another' }), key: 'key' },
    { ratelimit: new Ratelimit({ ...options, prefix: 'reset', durable: true }), key: 'key' },
  ]
  for (const { ratelimit, key } of [{ ratelimit: own, key: 'key' }, ...others]) await ratelimit.limit(key)
  await own.resetUsedTokens('key')
  expect(await own.getRemaining('key')).toMatchObject({ used: 0 })
  for (const { ratelimit, key } of others) {
    expect(await ratelimit.getRemaining(key)).toMatchObject({ used: 1 })
  }
})

test('without an injected clock the time is that of the database', async () => {
  const options = { db: database.db, limiter: Ratelimit.fixedWindow(1, '1h'), prefix: 'time' }
  const databaseMs = async () => {
    const [row] = await database.rows('select extract(epoch from clock_timestamp())::float8 * 1000 as now')
    return Number(row?.['now'])
  }
  const before = await databaseMs()
  const { reset } = await new Ratelimit(options).limit('key')
  const after = await databaseMs()
  expect(reset - 3_600_000).toBeGreaterThanOrEqual(Math.floor(before))
  expect(reset - 3_600_000).toBeLessThanOrEqual(after)
  expect(Number.isInteger(reset)).toBe(true)
})

test('keys are taken as they are: quotes, unicode, JSON, the longest', async () => {
  const ratelimit = new Ratelimit({
    db: database.db,
    limiter: Ratelimit.fixedWindow(1, '1m'),
    prefix: `'"\\$1`,
  })
  const keys = [
    `'; drop table x --`,
    '"',
    '\\',
    '$1',
    '{"a":[1]}',
    '👩‍👩‍👧',
    'é',
    'é',
    ' ',
    '\n',
    'k'.repeat(1019),
  ]
  for (const answers of [keys.map((key) => ratelimit.limit(key)), keys.map((key) => ratelimit.limit(key))]) {
    for (const answer of await Promise.all(answers)) expect(answer.limit).toBe(1)
  }
  for (const key of keys) expect(await ratelimit.getRemaining(key)).toMatchObject({ remaining: 0 })
})

describe('calls that arrive together', () => {
  const clock = new TestClock()

  test('share statements: two for new keys at each place, and few for known keys', async () => {
    const { db, statements } = watch(database.db)
    const limiter = Ratelimit.fixedWindow(1000, '1m')
    const ratelimit = new Ratelimit({
      ...{ ...quiet, db, limiter, prefix: 'together' },
      ...{ clock: clock.now, connections: 4 },
    })
    const answers = await Promise.all(
      Array.from({ length: 1200 }, (_, i) => ratelimit.limit(`key ${i % 600}`)),
    )
    expect(answers.filter(({ success }) => success)).toHaveLength(1200)
    // A burst goes by all four places.
    expect(statements.filter(isTake)).toHaveLength(4)
    const made = statements.length - 4
    expect(made).toBeGreaterThanOrEqual(4)
    // A statement that makes rows waits for no lock. Where it meets one, it is sent again in halves. On a busy
    // machine that is often.
    expect(made).toBeLessThan(hasServer() ? 200 : 5)
    await Promise.all(Array.from({ length: 30 }, (_, i) => ratelimit.limit(`key ${i % 10}`)))
    // Few keys share few statements.
    expect(statements.length).toBeLessThanOrEqual(4 + made + 2)
  })

  test('with plans that are equal but not the same object share statements, for each prefix', async () => {
    const { db, statements } = watch(database.db)
    const options = { ...quiet, db, clock: clock.now, connections: 1 }
    for (const prefix of ['had by one', 'had by another']) {
      const ratelimit = new Ratelimit({ ...options, limiter: Ratelimit.fixedWindow(5, '1m'), prefix })
      const all = () =>
        Promise.all(
          ['a', 'b', 'c'].map((key) => ratelimit.limit(key, { limiter: Ratelimit.fixedWindow(7, '1m') })),
        )
      statements.length = 0
      for (const { remaining } of await all()) expect(remaining).toBe(6)
      expect(statements).toHaveLength(2)
      for (const { remaining } of await all()) expect(remaining).toBe(5)
      expect(statements).toHaveLength(3)
    }
  })

  test('of one key with different rates and limits are decided in their order, as if alone', async () => {
    const limiter = Ratelimit.fixedWindow(10, '1m')
    const ratelimit = new Ratelimit({ ...quiet, db: database.db, limiter, prefix: 'mixed', clock: clock.now })
    const larger = Ratelimit.fixedWindow(12, '1m')
    const answers = await Promise.all([
      ratelimit.limit('key', { rate: 4 }),
      ratelimit.limit('key', { rate: 4 }),
      ratelimit.limit('key', { rate: 4 }),
      ratelimit.limit('key', { rate: 1 }),
      ratelimit.limit('key', { rate: 3, limiter: larger }),
      ratelimit.limit('key', { rate: 1 }),
    ])
    expect(answers.map(({ success, remaining }) => [success, remaining])).toEqual([
      [true, 6],
      [true, 2],
      [false, 2],
      [true, 1],
      [true, 0],
      [false, 0],
    ])
  })

  test('of one key that differ in the limit or in force are each decided by their own', async () => {
    const limiter = Ratelimit.fixedWindow(3, '1m')
    const ratelimit = new Ratelimit({ ...quiet, db: database.db, limiter, prefix: 'plans', clock: clock.now })
    const pro = () => Ratelimit.fixedWindow(5, '1m')
    const answers = await Promise.all([
      ratelimit.limit('key', { rate: 2 }),
      ratelimit.limit('key', { rate: 2 }),
      ratelimit.limit('key', { rate: 2, limiter: pro() }),
      ratelimit.limit('key', { rate: 2, limiter: pro() }),
      ratelimit.limit('key', { rate: 2, limiter: pro(), force: true }),
      ratelimit.limit('key', { rate: 2, limiter: Ratelimit.slidingWindow(5, '1m') }),
      ratelimit.limit('key', { rate: 2, limiter: pro() }),
    ])
    expect(answers.map(({ success, limit, remaining }) => [success, limit, remaining])).toEqual([
      [true, 3, 1],
      [false, 3, 1],
      [true, 5, 1],
      [false, 5, 1],
      [true, 5, 0],
      // A sliding window reads no row of a fixed one, and leaves one that a fixed window does not read.
      [true, 5, 3],
      [true, 5, 3],
    ])
  })

  test('of one key that differ in force: the forced calls are charged', async () => {
    const limiter = Ratelimit.fixedWindow(5, '1m')
    const ratelimit = new Ratelimit({
      ...quiet,
      db: database.db,
      limiter,
      prefix: 'forced',
      clock: clock.now,
    })
    const calls = [false, false, false, true, false].map((force) =>
      ratelimit.limit('key', { rate: 2, force }),
    )
    const answers = await Promise.all(calls)
    expect(answers.map(({ success }) => success)).toEqual([true, true, false, true, false])
    expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 6 })
  })

  test('of several keys with plans of their own are each decided by their own', async () => {
    const limiter = Ratelimit.fixedWindow(1, '1m')
    const ratelimit = new Ratelimit({ ...quiet, db: database.db, limiter, prefix: 'own', clock: clock.now })
    const plans = Array.from({ length: 12 }, (_, i) => Ratelimit.fixedWindow((i % 3) + 1, '1m'))
    for (let times = 1; times <= 3; times++) {
      const answers = await Promise.all(
        plans.map((plan, i) => ratelimit.limit(`key ${i}`, { limiter: plan })),
      )
      for (const [i, answer] of answers.entries()) {
        const limit = (i % 3) + 1
        expect(answer).toMatchObject({
          limit,
          success: times <= limit,
          remaining: Math.max(limit - times, 0),
        })
      }
    }
  })

  test('with other algorithms', async () => {
    const limiter = Ratelimit.fixedWindow(10, '1m')
    const ratelimit = new Ratelimit({ ...quiet, db: database.db, limiter, prefix: 'kinds', clock: clock.now })
    const answers = await Promise.all([
      ratelimit.limit('a'),
      ratelimit.limit('b', { limiter: Ratelimit.tokenBucket(1, '1m', 3) }),
      ratelimit.limit('c', { limiter: Ratelimit.slidingWindow(5, '1m') }),
      ratelimit.limit('d'),
    ])
    expect(answers.map(({ limit, remaining }) => [limit, remaining])).toEqual([
      [10, 9],
      [3, 2],
      [5, 4],
      [10, 9],
    ])
  })

  test('more keys than a statement takes', async () => {
    const limiter = Ratelimit.fixedWindow(1, '1m')
    const ratelimit = new Ratelimit({ ...quiet, db: database.db, limiter, prefix: 'many', clock: clock.now })
    const answers = await Promise.all(Array.from({ length: 1200 }, (_, i) => ratelimit.limit(`key ${i}`)))
    expect(answers.every(({ success }) => success)).toBe(true)
  })

  test('a bad call does not fail its neighbours', async () => {
    const limiter = Ratelimit.fixedWindow(5, '1m')
    const ratelimit = new Ratelimit({ ...quiet, db: database.db, limiter, prefix: 'bad', clock: clock.now })
    const answers = await Promise.allSettled([
      ratelimit.limit('a'),
      ratelimit.limit(''),
      ratelimit.limit('b'),
    ])
    expect(answers.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
  })

  test('when a statement fails, its own calls fail and no others', async () => {
    const [sent, ended] = [gate(), gate()]
    let failures = 1
    const { db } = watch(database.db, async () => {
      if (failures-- <= 0) return
      sent.open()
      await ended.opened
      throw new Error('gone')
    })
    const limiter = Ratelimit.fixedWindow(5, '1m')
    const ratelimit = new Ratelimit({ ...quiet, db, limiter, prefix: 'fails', clock: clock.now })
    const first = Promise.allSettled([ratelimit.limit('a'), ratelimit.limit('b')])
    await sent.opened
    const second = ratelimit.limit('a')
    ended.open()
    expect((await first).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    expect(await second).toMatchObject({ success: true, remaining: 4 })
  })
})

describe('a large count', () => {
  test('of the largest safe integer is exact', async () => {
    const most = Number.MAX_SAFE_INTEGER
    const limiter = Ratelimit.fixedWindow(most, '1m')
    const ratelimit = new Ratelimit({ ...quiet, db: database.db, limiter, prefix: 'large' })
    expect(await ratelimit.limit('key', { rate: most - 1 })).toMatchObject({ success: true, remaining: 1 })
    expect(await ratelimit.limit('key', { rate: most })).toMatchObject({ success: false, remaining: 1 })
    expect(await ratelimit.limit('key')).toMatchObject({ success: true, remaining: 0 })
  })
})

test('credits refuse a limiter, and keep what was granted', async () => {
  const credits = new Credits({ ...quiet, db: database.db, prefix: 'refusing' })
  await credits.grant('key', 10)
  for (const { of } of examples) {
    const { limiter } = of(5, '1h')
    const plan: object = { limiter }
    const calls = [credits.limit('key', plan), limitAll([{ ratelimit: credits, key: 'key', ...plan }])]
    for (const call of calls) await expect(call).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  }
  expect(await credits.getRemaining('key')).toMatchObject({ limit: 10, remaining: 10 })
})

test('atLeast takes what is left, and credits hold what was granted', async () => {
  const credits = new Credits({ ...quiet, db: database.db, prefix: 'balance' })
  expect(await credits.limit('key')).toMatchObject({ success: false, retryAfter: Infinity })
  expect(await credits.grant('key', 10)).toMatchObject({ limit: 10, remaining: 10 })
  const parts = await Promise.all([1, 2, 3].map(() => credits.limit('key', { rate: 6, atLeast: 2 })))
  expect(parts.map((part) => part.success && part.granted)).toEqual([6, 4, false])
})
