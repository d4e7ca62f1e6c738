import { and, eq } from 'drizzle-orm'
import { block, blocks, lockout } from 'drizzle-ratelimit/lockout'
import { remainingOf, resetOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import { beforeEach, describe, expect, test } from 'vitest'
import { limitAll, Ratelimit, rateLimitDurable } from '../../../src/index.ts'
import { Quota, type QuotaConfig, reserveAll, spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'

const database = useDatabase()
const MINUTE = 60_000
const FIVE = Ratelimit.fixedWindow(5, '1d')
const LOGINS = lockout(3, '15m', { block: '1m', max: '1d' })
const ENDLESS = lockout(Number.POSITIVE_INFINITY, '15m', { block: '1m' })
let clock: TestClock
beforeEach(() => {
  clock = new TestClock()
})

let prefixes = 0
function limited(options: object): Quota {
  const { db } = database
  const common = { db, limiter: FIVE, clock: clock.now, cleanupProbability: 0 }
  return new Quota({
    ...common,
    prefix: `blocked until ${prefixes++}`,
    ...options,
  } as QuotaConfig)
}

/** A limiter of which ada is blocked for a minute, and what she has used. */
interface Kind {
  readonly block: () => Promise<Quota>
  readonly used: number
  readonly limit: number
}

const KINDS: Readonly<Record<string, Kind>> = {
  'a lockout, by failures': {
    block: async () => {
      const ratelimit = limited({ limiter: LOGINS })
      await ratelimit.limit('ada', { rate: 3 })
      return ratelimit
    },
    ...{ used: 3, limit: 3 },
  },
  'a lockout, by hand': {
    block: async () => {
      const ratelimit = limited({ limiter: LOGINS })
      await ratelimit.limit('ada')
      await block(ratelimit, 'ada', '1m')
      return ratelimit
    },
    ...{ used: 3, limit: 3 },
  },
  'a limit with blocks': {
    block: async () => {
      const ratelimit = limited({ limiter: FIVE, use: [blocks()] })
      await ratelimit.limit('ada', { rate: 2 })
      await block(ratelimit, 'ada', '1m')
      return ratelimit
    },
    ...{ used: 2, limit: 5 },
  },
}

describe.each(Object.entries(KINDS))('a key that is blocked by %s', (_, { block, used, limit }) => {
  const calls: Readonly<Record<string, (one: Quota) => Promise<unknown>>> = {
    limit: (one) => one.limit('ada'),
    'limit with more than the limit': (one) => one.limit('ada', { rate: 9 }),
    'limit with atLeast': (one) => one.limit('ada', { rate: 2, atLeast: 1 }),
    'limit with once': (one) => one.limit('ada', { once: { id: 'a', for: '1d' } }),
    'limit in a transaction': (one) => database.db.transaction((tx) => one.limit('ada', { tx })),
    reserve: (one) => one.reserve('ada'),
    'reserve with a name': (one) => one.reserve('ada', { rate: 1, id: 'a', expires: '10m' }),
    blockUntilReady: (one) => one.blockUntilReady('ada', 0),
    limitAll: async (one) => (await limitAll([{ ratelimit: one, key: 'ada' }])).results[0],
    'limitAll, with others': async (one) => {
      const other = limited({ limiter: FIVE })
      const both = [other, one].map((ratelimit) => ({ ratelimit, key: 'ada' }))
      return (await limitAll(both)).results[1]
    },
    reserveAll: async (one) => (await reserveAll([{ ratelimit: one, key: 'ada' }])).results[0],
    spend: async (one) => (await spend([{ ratelimit: one, key: 'ada' }], { rate: 1 })).results[0],
    'spend with a name': async (one) => {
      const options = { rate: 1, id: 'a', expires: '10m' } as const
      return (await spend([{ ratelimit: one, key: 'ada' }], options)).results[0]
    },
  }
  test.each(Object.entries(calls))('%s is denied until then', async (_, call) => {
    const ratelimit = await block()
    clock.advance(10_000)
    const blockedUntil = clock.ms + 50_000
    expect(await call(ratelimit)).toMatchObject({ success: false, remaining: 0, limit, blockedUntil })
  })

  test('retryAfter is the end of the block, and with it blockedUntil is gone', async () => {
    const ratelimit = await block()
    const answer = await ratelimit.limit('ada')
    expect(answer).toMatchObject({ retryAfter: MINUTE, reset: clock.ms + MINUTE })
    clock.advance(MINUTE)
    for (const each of [await ratelimit.getRemaining('ada'), await ratelimit.limit('ada')]) {
      expect(each).not.toHaveProperty('blockedUntil')
    }
  })

  test('looks and lists say it, and what was used', async () => {
    const ratelimit = await block()
    await ratelimit.limit('bob')
    clock.advance(10_000)
    const blocked = { used, limit, remaining: 0, blockedUntil: clock.ms + 50_000 }
    const look = await ratelimit.getRemaining('ada')
    expect(look).toMatchObject(blocked)
    expect(await ratelimit.getRemainingAll(['bob', 'ada'])).toEqual([
      expect.not.objectContaining({ blockedUntil: expect.anything() }),
      look,
    ])
    const { limiter, prefix } = ratelimit
    const reading = { prefix, durable: true, clock: clock.now }
    const list = [
      { key: 'ada', ...look },
      { key: 'bob', ...(await ratelimit.getRemaining('bob')) },
    ]
    expect(await usage({ db: database.db, ...reading, limiter })).toEqual(list)
    expect(await usage({ db: database.db, ...reading, limiterOf: () => limiter })).toEqual(list)
    clock.advance(50_000)
    const after = await usage({ db: database.db, ...reading, limiter })
    for (const each of after) expect(each).not.toHaveProperty('blockedUntil')
  })

  test('a query of the rows finds what was used', async () => {
    const ratelimit = await block()
    const { prefix, limiter } = ratelimit
    const options = { clock: clock.now }
    const [row] = await database.db
      .select({ used: usedOf(rateLimitDurable, limiter, options) })
      .from(rateLimitDurable)
      .where(and(eq(rateLimitDurable.prefix, prefix), eq(rateLimitDurable.key, 'ada')))
    expect(row).toEqual({ used })
  })
})

test('block says it, also where it replaces a block', async () => {
  for (const ratelimit of [limited({ limiter: LOGINS }), limited({ limiter: FIVE, use: [blocks()] })]) {
    for (const minutes of [1, 5, 2]) {
      const blockedUntil = clock.ms + minutes * MINUTE
      const answer = await block(ratelimit, 'ada', minutes * MINUTE)
      expect(answer).toMatchObject({ remaining: 0, blockedUntil })
      expect(answer).toEqual(await ratelimit.getRemaining('ada'))
    }
  }
})

test('schedule says it', async () => {
  const ratelimit = limited({ limiter: Ratelimit.gcra(5, '5s'), use: [blocks()] })
  await block(ratelimit, 'ada', '1m')
  const denied = { success: false, retryAfter: MINUTE, blockedUntil: clock.ms + MINUTE }
  expect(await schedule(ratelimit, 'ada', { within: '1h' })).toEqual(denied)
})

test('the wait for the limit may be longer than the block', async () => {
  const ratelimit = limited({ limiter: FIVE, use: [blocks()] })
  await ratelimit.limit('ada', { rate: 5 })
  await block(ratelimit, 'ada', '1m')
  const expected = { reset: clock.ms + 24 * 60 * MINUTE, blockedUntil: clock.ms + MINUTE }
  expect(await ratelimit.limit('ada')).toMatchObject({ ...expected, retryAfter: 24 * 60 * MINUTE })
  expect(await ratelimit.getRemaining('ada')).toMatchObject(expected)
})

test('calls at once: one has started the block, and the others are denied until its end', async () => {
  const ratelimit = limited({ limiter: LOGINS })
  const answers = await Promise.all(Array.from({ length: 8 }, () => ratelimit.limit('ada')))
  const ends = answers.filter(({ blockedUntil }) => blockedUntil === clock.ms + MINUTE)
  expect(ends.filter(({ success }) => success)).toHaveLength(1)
  expect(ends.filter(({ success }) => !success)).toHaveLength(5)
})

test('an answer from memory says it', async () => {
  const ratelimit = limited({ limiter: LOGINS, inMemoryBlock: true })
  await ratelimit.limit('ada', { rate: 3 })
  const denied = await ratelimit.limit('ada')
  await database.rows('delete from rate_limit_durable where prefix = $1 returning 1', [ratelimit.prefix])
  expect(await ratelimit.limit('ada')).toEqual(denied)
  expect(denied).toMatchObject({ success: false, blockedUntil: clock.ms + MINUTE })
})

test('a dry run says it of the denial, because it starts no block', async () => {
  const ratelimit = limited({ limiter: LOGINS, dryRun: true })
  await ratelimit.limit('ada', { rate: 3 })
  const answer = await ratelimit.limit('ada')
  expect(answer).toMatchObject({ success: true, wouldDeny: { blockedUntil: clock.ms + MINUTE } })
  expect(answer).not.toHaveProperty('blockedUntil')
})

test('a limit that denies without a block says nothing of one', async () => {
  const ratelimit = limited({ limiter: LOGINS })
  const tooMuch = await ratelimit.limit('ada', { rate: 4 })
  expect(tooMuch).toMatchObject({ success: false })
  expect(tooMuch).not.toHaveProperty('blockedUntil')
  await ratelimit.limit('ada', { rate: 2 })
  // Under a smaller limit the same failures use up everything, and have started no block.
  const smaller = lockout(2, '15m', { block: '1m' })
  const denied = await ratelimit.limit('ada', { limiter: smaller })
  expect(denied).toMatchObject({ success: false, retryAfter: 15 * MINUTE })
  expect(denied).not.toHaveProperty('blockedUntil')
})

test('a larger limit lifts a block that failures have started, and none by hand', async () => {
  const ratelimit = limited({ limiter: LOGINS })
  const larger = { limiter: lockout(10, '15m', { block: '1m' }) }
  await ratelimit.limit('ada', { rate: 3 })
  expect(await ratelimit.getRemaining('ada', larger)).not.toHaveProperty('blockedUntil')
  expect(await ratelimit.limit('ada', larger)).toMatchObject({ success: true, remaining: 6 })
  await block(ratelimit, 'ada', '1m')
  const blocked = { remaining: 0, blockedUntil: clock.ms + MINUTE }
  expect(await ratelimit.getRemaining('ada', larger)).toMatchObject({ ...blocked, used: 10 })
  expect(await ratelimit.limit('ada', larger)).toMatchObject({ ...blocked, success: false })
})

test('a lockout without a limit that blocks by hand has nothing left', async () => {
  const ratelimit = limited({ limiter: ENDLESS })
  await block(ratelimit, 'ada', '1m')
  const end = clock.ms + MINUTE
  const expected = { used: 0, remaining: 0, reset: end }
  expect(await ratelimit.getRemaining('ada')).toMatchObject({ ...expected, blockedUntil: end })
  expect(await ratelimit.limit('ada')).toMatchObject({ success: false, remaining: 0, blockedUntil: end })
  const options = { clock: clock.now }
  const numbers = {
    used: usedOf(rateLimitDurable, ENDLESS, options),
    remaining: remainingOf(rateLimitDurable, ENDLESS, options),
    reset: resetOf(rateLimitDurable, ENDLESS, options),
  }
  const isPrefix = eq(rateLimitDurable.prefix, ratelimit.prefix)
  expect(await database.db.select(numbers).from(rateLimitDurable).where(isPrefix)).toEqual([expected])
  const reading = { prefix: ratelimit.prefix, durable: true, clock: clock.now }
  const list = [{ key: 'ada', ...(await ratelimit.getRemaining('ada')) }]
  expect(await usage({ db: database.db, ...reading, limiter: ENDLESS })).toEqual(list)
  expect(await usage({ db: database.db, ...reading, limiterOf: () => ENDLESS })).toEqual(list)
})

test('a list shows the block of a key whose row is of another plan, and no count of a block', async () => {
  const ratelimit = limited({ limiter: FIVE, use: [blocks()] })
  const monthly = { limiter: Ratelimit.slidingWindow(5, '1d') }
  for (const key of ['ada', 'bob']) await ratelimit.limit(key, { rate: 2, ...monthly })
  await block(ratelimit, 'ada', '1m')
  const list = () =>
    usage({ db: database.db, prefix: ratelimit.prefix, limiter: FIVE, clock: clock.now, durable: true })
  expect(await list()).toEqual([
    { key: 'ada', used: 2, isOther: true, blockedUntil: clock.ms + MINUTE },
    { key: 'bob', used: 2, isOther: true },
  ])
  const logins = limited({ limiter: LOGINS })
  await block(logins, 'ada', '1m')
  const reading = { prefix: logins.prefix, limiter: FIVE, durable: true, clock: clock.now }
  expect(await usage({ db: database.db, ...reading })).toEqual([])
})
