import { countDenials } from 'drizzle-ratelimit/denials'
import { block, blocks, lockout, unblock } from 'drizzle-ratelimit/lockout'
import { prefetch } from 'drizzle-ratelimit/prefetch'
import { denied, usage } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import { beforeEach, describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { limitAll, Ratelimit, type RatelimitConfig } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const MINUTE = 60_000
const HOUR = 60 * MINUTE
let clock: TestClock
beforeEach(() => {
  clock = new TestClock()
})

const WINDOW = Ratelimit.fixedWindow(5, '1d')
let prefixes = 0

/** A limiter whose keys can be blocked. */
function blocking(options: object = {}): Ratelimit {
  const common = {
    db: database.db,
    limiter: WINDOW,
    clock: clock.now,
    cleanupProbability: 0,
    use: [blocks()],
  }
  return new Ratelimit({ ...common, prefix: `blocks ${prefixes++}`, ...options } as RatelimitConfig)
}

function rowsOf({ prefix }: Pick<Ratelimit, 'prefix'>) {
  return database.rows('select * from rate_limit_ephemeral where starts_with(prefix, $1) order by 1, 2', [
    prefix,
  ])
}

test('a process with a clock that is behind sees the block, and not for longer', async () => {
  const ratelimit = blocking()
  const late = new TestClock(clock.ms - 5000)
  const behind = blocking({ prefix: ratelimit.prefix, clock: late.now })
  await block(ratelimit, 'ada', '1h')
  expect(await behind.limit('ada')).toMatchObject({ success: false, blockedUntil: clock.ms + HOUR })
  late.advance(5000 + HOUR)
  expect(await behind.limit('ada')).toMatchObject({ success: true })
})

describe.each([
  ['a token bucket', Ratelimit.tokenBucket(5, '1d', 5)],
  ['gcra', Ratelimit.gcra(5, '5d')],
  ['a fixed window', WINDOW],
  ['a sliding window', Ratelimit.slidingWindow(5, '1d')],
  ['a calendar window', calendarWindow(5, 'month')],
  ['credits', undefined],
  ['dated credits', 'dated'],
] as const)('a key of %s', (_, limiter) => {
  /** Five of it. */
  async function made(): Promise<Ratelimit | Credits<boolean>> {
    if (limiter !== undefined && limiter !== 'dated') return blocking({ limiter })
    const options = { prefix: `blocks ${prefixes++}`, clock: clock.now, use: [blocks()], durable: false }
    if (limiter) {
      const credits = new Credits({ db: database.db, cleanupProbability: 0, ...options, dated: true })
      await credits.grant('ada', 5, { id: 'first' })
      return credits
    }
    const credits = new Credits({ db: database.db, cleanupProbability: 0, ...options })
    await credits.grant('ada', 5)
    return credits
  }

  test('is denied while it is blocked, to the millisecond, and keeps what it has used', async () => {
    const ratelimit = await made()
    await ratelimit.limit('ada', { rate: 2 })
    const used = await ratelimit.getRemaining('ada')
    const until = clock.ms + HOUR
    expect(await block(ratelimit, 'ada', '1h')).toMatchObject({ used: 2, remaining: 0 })
    const before = await rowsOf(ratelimit)
    expect(await ratelimit.limit('ada')).toMatchObject({
      ...{ success: false, limit: 5, remaining: 0, reset: until, retryAfter: HOUR },
    })
    expect(await ratelimit.getRemaining('ada')).toMatchObject({ used: 2, remaining: 0 })
    expect(await rowsOf(ratelimit)).toEqual(before)
    expect(await ratelimit.limit('another key', { rate: 0 })).toMatchObject({ success: true })
    clock.advance(HOUR - 1)
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await ratelimit.limit('ada', { rate: 3 })).toMatchObject({ success: true })
    expect((await ratelimit.getRemaining('ada')).limit).toBe(used.limit)
  })

  test('can be unblocked', async () => {
    const ratelimit = await made()
    await ratelimit.limit('ada')
    await block(ratelimit, 'ada', '1h')
    await block(ratelimit, 'ada', '2h')
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 2 * HOUR })
    await unblock(ratelimit, 'ada')
    await unblock(ratelimit, 'ada')
    expect(await ratelimit.limit('ada')).toMatchObject({ success: true, remaining: 3 })
  })
})

describe('while a key is blocked', () => {
  async function blocked(options: object = {}) {
    const ratelimit = blocking(options)
    await block(ratelimit, 'ada', '1h')
    return { ratelimit, key: 'ada' }
  }
  const DENIED = { success: false, retryAfter: HOUR }

  test.each<[string, (one: Ratelimit) => Promise<unknown>]>([
    ['limit', (one) => one.limit('ada')],
    ['limit with atLeast', (one) => one.limit('ada', { rate: 3, atLeast: 1 })],
    ['limit with once', (one) => one.limit('ada', { once: { id: 'once', for: '1d' } })],
    ['limit in a transaction', (one) => database.db.transaction((tx) => one.limit('ada', { tx }))],
    ['reserve', (one) => one.reserve('ada')],
    ['blockUntilReady', (one) => one.blockUntilReady('ada', '1m')],
    ['limitAll', (one) => limitAll([{ ratelimit: one, key: 'ada' }])],
    ['reserveAll', (one) => reserveAll([{ ratelimit: one, key: 'ada' }])],
    ['spend', (one) => spend([{ ratelimit: one, key: 'ada' }], { rate: 2 })],
  ])('%s is denied', async (_, call) => {
    const { ratelimit } = await blocked()
    expect(await call(ratelimit)).toMatchObject(DENIED)
    expect(await ratelimit.getRemaining('ada')).toMatchObject({ used: 0 })
  })

  test.each([
    ['no limit', Ratelimit.unlimited()],
    ['a calendar window', calendarWindow(5, 'month')],
  ])('limit is denied under %s', async (_, limiter) => {
    const { ratelimit } = await blocked({ limiter })
    expect(await ratelimit.limit('ada')).toMatchObject({ ...DENIED, remaining: 0 })
    clock.advance(HOUR)
    expect(await ratelimit.limit('ada')).toMatchObject({ success: true })
  })

  test('it gets no start time', async () => {
    const { ratelimit } = await blocked({ limiter: Ratelimit.gcra(5, '5s') })
    expect(await schedule(ratelimit, 'ada', { within: '2h' })).toMatchObject(DENIED)
    clock.advance(HOUR)
    expect(await schedule(ratelimit, 'ada', { within: 0 })).toMatchObject({ success: true })
  })

  test('what is never denied passes: looks, refunds, forced charges and settlements', async () => {
    const ratelimit = blocking()
    const reserved = await ratelimit.reserve('ada', { rate: 3 })
    await block(ratelimit, 'ada', '1h')
    if (reserved.success) await reserved.commit(2)
    await ratelimit.limit('ada', { rate: 2, force: true })
    await ratelimit.limit('ada', { rate: -1 })
    expect(await ratelimit.limit('ada', { rate: 0 })).toMatchObject({ success: true, remaining: 2 })
    expect(await ratelimit.getRemaining('ada')).toMatchObject({ used: 3, remaining: 0 })
  })

  test('a list charges no other limit, and one block denies all shares of a cost', async () => {
    const { ratelimit, key } = await blocked()
    const other = blocking()
    const both = [
      { ratelimit: other, key },
      { ratelimit, key },
    ]
    const answer = await limitAll(both)
    expect(answer).toMatchObject({ ...DENIED, results: [{ success: true }, DENIED] })
    expect(answer.denied).toEqual([both[1]])
    expect(await spend(both, { rate: 2 })).toMatchObject({ ...DENIED, granted: [0, 0] })
    expect(await other.getRemaining(key)).toMatchObject({ used: 0 })
    await unblock(ratelimit, key)
    expect(await limitAll(both)).toMatchObject({ success: true })
    expect(await spend(both, { rate: 6 })).toMatchObject({ success: true, granted: [4, 2] })
  })

  test('retryAfter of spend does not count credits that end before the block does', async () => {
    const ratelimit = blocking()
    const common = { db: database.db, clock: clock.now, cleanupProbability: 0 }
    const credits = new Credits({ ...common, prefix: `blocks ${prefixes++}`, dated: true })
    await ratelimit.limit('ada', { rate: 3 })
    await credits.grant('ada', 3, { id: 'promo', expires: '1h' })
    await block(ratelimit, 'ada', '2h')
    const both = [
      { ratelimit, key: 'ada' },
      { ratelimit: credits, key: 'ada' },
    ]
    expect(await spend(both, { rate: 5 })).toMatchObject({ success: false, retryAfter: 24 * HOUR })
    expect(await spend(both, { rate: 2 })).toMatchObject({ success: false, retryAfter: 2 * HOUR })
    clock.advance(24 * HOUR)
    expect(await spend(both, { rate: 5 })).toMatchObject({ success: true })
  })

  test('retryAfter is that of the limit if it is longer', async () => {
    const ratelimit = blocking()
    await ratelimit.limit('ada', { rate: 5 })
    await block(ratelimit, 'ada', '1h')
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false, retryAfter: 24 * HOUR })
    expect(await ratelimit.getRemaining('ada')).toMatchObject({ reset: clock.ms + 24 * HOUR })
  })

  test('looks at many keys show it', async () => {
    const { ratelimit } = await blocked()
    await ratelimit.limit('bob')
    expect(await ratelimit.getRemainingAll(['bob', 'ada', 'eve', 'ada'])).toMatchObject([
      { remaining: 4 },
      { remaining: 0, reset: clock.ms + HOUR },
      { remaining: 5 },
      { remaining: 0 },
    ])
  })

  test('its denials are counted, and no list has its row', async () => {
    const { ratelimit } = await blocked({ use: [blocks(), countDenials({ every: '1h' })] })
    await ratelimit.limit('ada')
    await ratelimit.close()
    expect(await denied(ratelimit)).toEqual([{ key: 'ada', denials: 1 }])
    expect(await usage(ratelimit)).toEqual([])
  })
})

test('blockUntilReady waits for the end of a block', async () => {
  const ratelimit = new Ratelimit({
    db: database.db,
    limiter: WINDOW,
    prefix: 'blocks waits',
    use: [blocks()],
  })
  await block(ratelimit, 'ada', 300)
  expect(await ratelimit.blockUntilReady('ada', '10s')).toMatchObject({ success: true, remaining: 4 })
})

test('a block joins a transaction', async () => {
  const ratelimit = blocking()
  await database.db
    .transaction(async (tx) => {
      await block(ratelimit, 'ada', '1h', { tx })
      expect(await ratelimit.limit('ada', { tx })).toMatchObject({ success: false })
      expect(await ratelimit.getRemaining('ada', { tx })).toMatchObject({ remaining: 0 })
      tx.rollback()
    })
    .catch(() => {})
  expect(await ratelimit.limit('ada')).toMatchObject({ success: true })
})

test('a check is a look at the block and the charge, and nothing more', async () => {
  const { db, statements } = watch(database.db)
  const ratelimit = blocking({ db })
  await ratelimit.limit('ada')
  const before = statements.length
  await ratelimit.limit('ada')
  expect(statements.length - before).toBe(2)
})

test('a block that ends between the look at it and the answer does not deny', async () => {
  const { db } = watch(database.db, async () => clock.advance(1))
  const ratelimit = blocking({ db })
  await block(ratelimit, 'ada', 3)
  expect(await ratelimit.limit('ada')).toMatchObject({ success: true, remaining: 4 })
})

test.each(['allow', 'deny'] as const)('during an outage onError %s answers', async (onError) => {
  let left = 0
  const { db } = watch(database.db, () => {
    if (left-- <= 0) throw Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
  })
  for (const reached of [0, 1]) {
    left = reached
    const answer = await blocking({ db, onError }).limit('ada')
    expect(answer).toMatchObject({ success: onError === 'allow', degraded: true })
  }
})

test('the row of a block is swept when it is over, and not before', async () => {
  const ratelimit = blocking()
  await block(ratelimit, 'ada', '1h')
  clock.advance(HOUR - 1)
  expect(await ratelimit.cleanup()).toBe(0)
  clock.advance(24 * HOUR)
  expect(await ratelimit.cleanup()).toBe(1)
  expect(await rowsOf(ratelimit)).toEqual([])
})

test('keys are hashed, and may be as long as those of the limit', async () => {
  const hashed = blocking({ hashKeys: true })
  await block(hashed, 'ada', '1h')
  expect(await hashed.limit('ada')).toMatchObject({ success: false })
  for (const { key } of await rowsOf(hashed)) expect(key).toMatch(/^[0-9a-f]{64}$/)
  const ratelimit = blocking()
  const long = 'x'.repeat(1024 - ratelimit.prefix.length)
  await block(ratelimit, long, '1h')
  expect(await ratelimit.limit(long)).toMatchObject({ success: false })
})

test.each<[string, () => unknown, string]>([
  ['dryRun', () => blocking({ dryRun: true }), 'INVALID_OPTION'],
  ['inMemoryBlock', () => blocking({ inMemoryBlock: true }), 'INVALID_OPTION'],
  ['prefetch', () => blocking({ use: [blocks(), prefetch({ tokens: 5, for: '1s' })] }), 'INVALID_OPTION'],
  ['a lockout', () => blocking({ limiter: lockout(5, '1m', { block: '1m' }) }), 'INVALID_OPTION'],
  ['a prefix of its own rows', () => blocking({ prefix: 'api [blocked]' }), 'INVALID_PREFIX'],
])('%s is refused', (_, make, code) => {
  expect(make).toThrow(expect.objectContaining({ code }))
})

test.each<[string, () => Promise<unknown>, string]>([
  ['block without it', () => block(blocking({ use: [] }), 'ada', '1h'), 'INVALID_OPTION'],
  ['unblock without it', () => unblock(blocking({ use: [] }), 'ada'), 'INVALID_OPTION'],
  ['no time', () => block(blocking(), 'ada', 0), 'INVALID_DURATION'],
])('%s: refused', async (_, call, code) => {
  await expect(call()).rejects.toMatchObject({ code })
})
