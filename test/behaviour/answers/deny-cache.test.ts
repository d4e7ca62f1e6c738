import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Database, limitAll, Ratelimit } from '../../../src/index.ts'
import { spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { examples } from '../../support/limits.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { runs } from '../../support/runs.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
/** No test lasts an hour. So, by the clock of the database, a denial stays one until the test ends. */
const HOURLY = Ratelimit.fixedWindow(7, '1h')
let prefixes = 0

/** A limiter that remembers denials, another that does not, and the statements of the first. */
function pair(limiter = HOURLY, clock?: TestClock) {
  const { db, statements } = watch(database.db)
  const common = {
    limiter,
    prefix: `deny ${prefixes++}`,
    cleanupProbability: 0,
    ...(clock && { clock: clock.now }),
  }
  const caching = new Ratelimit({ ...common, db, inMemoryBlock: true })
  return { caching, asking: new Ratelimit({ ...common, db: database.db }), statements, common }
}

describe.each(examples)('$name', ({ of }) => {
  const { limiter } = of(7, '1s')
  const [allOfIt, one] = [7, 1].map((rate) => ({ passedMs: 0, rate }))

  test('gives from memory the answer of the database, to the millisecond and to the unit', async () => {
    const step = fc.record({
      passedMs: fc.oneof(
        { weight: 4, arbitrary: fc.integer({ min: 0, max: 3 }) },
        { weight: 4, arbitrary: fc.integer({ min: 0, max: 300 }) },
        fc.integer({ min: 0, max: 12_000 }),
      ),
      rate: fc.oneof(
        { weight: 6, arbitrary: fc.integer({ min: 1, max: 8 }) },
        fc.integer({ min: -3, max: 0 }),
      ),
    })
    let fromMemory = 0
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps) => {
        const clock = new TestClock()
        const { caching, asking, statements } = pair(limiter, clock)
        for (const { passedMs, rate } of steps) {
          clock.advance(passedMs)
          const before = statements.length
          const answer = await caching.limit('key', { rate })
          if (statements.length === before) fromMemory++
          // A denial writes nothing, so the same call can be made again.
          if (!answer.success) expect(answer).toEqual(await asking.limit('key', { rate }))
        }
      }),
      { ...runs(40), examples: [[[allOfIt, ...Array(5).fill(one)]]] },
    )
    // One asks, and memory answers the others.
    expect(fromMemory).toBeGreaterThanOrEqual(4)
  })
})

test('repeated denials need no database, other keys and other limits do', async () => {
  const { caching, statements } = pair()
  await caching.limit('key', { rate: 7 })
  for (let i = 0; i < 5; i++) expect(await caching.limit('key')).toMatchObject({ success: false })
  // Two make the row, and one is denied.
  expect(statements).toHaveLength(3)
  expect(await caching.limit('key', { limiter: Ratelimit.fixedWindow(8, '1h') })).toMatchObject({
    success: true,
  })
  expect(await caching.limit('other')).toMatchObject({ success: true })
  expect(statements).toHaveLength(3 + 1 + 2)
})

test('is not forgotten when something is given back under another prefix', async () => {
  const { caching, statements, common } = pair()
  await caching.limit('key', { rate: 7 })
  await caching.limit('key')
  const other = new Ratelimit({ ...common, db: database.db, prefix: `${caching.prefix}, other` })
  await other.limit('key', { rate: -1 })
  const before = statements.length
  expect(await caching.limit('key')).toMatchObject({ success: false })
  expect(statements).toHaveLength(before)
})

test("remembers a plan's denial too", async () => {
  const { caching, statements } = pair()
  const limiter = Ratelimit.fixedWindow(3, '1h')
  await caching.limit('key', { rate: 3, limiter })
  for (let i = 0; i < 5; i++)
    expect(await caching.limit('key', { limiter })).toMatchObject({ success: false })
  expect(statements).toHaveLength(3)
})

test('asks the database for another plan in a transaction', async () => {
  const { caching } = pair()
  await caching.limit('key', { rate: 7 })
  expect(await caching.limit('key')).toMatchObject({ success: false })
  const limiter = Ratelimit.tokenBucket(1, '1h', 5)
  await database.db.transaction((tx) => caching.limit('key', { tx, limiter }))
  expect(await caching.limit('key')).toMatchObject({ success: true })
})

test('a denied 6 does not block a permitted 1', async () => {
  const { caching } = pair()
  await caching.limit('key', { rate: 5 })
  expect(await caching.limit('key', { rate: 6 })).toMatchObject({ success: false })
  expect(await caching.limit('key', { rate: 1 })).toMatchObject({ success: true, remaining: 1 })
})

describe('a denial is forgotten when something is given back,', () => {
  test.each<[string, (one: Ratelimit) => Promise<unknown>]>([
    ['by a refund', (one) => one.limit('key', { rate: -1 })],
    ['by a reset', (one) => one.resetUsedTokens('key')],
    ['by limitAll', (one) => limitAll([{ ratelimit: one, key: 'key', rate: -1 }])],
    [
      'by a refund in a transaction',
      (one) => database.db.transaction((tx) => one.limit('key', { rate: -1, tx })),
    ],
    [
      'by a reset in a transaction',
      (one) => database.db.transaction((tx) => one.resetUsedTokens('key', { tx })),
    ],
  ])('%s, by this limiter or another of the process', async (_, giveBack) => {
    for (const who of ['caching', 'asking'] as const) {
      const limiters = pair()
      await limiters.caching.limit('key', { rate: 7 })
      expect(await limiters.caching.limit('key')).toMatchObject({ success: false })
      await giveBack(limiters[who])
      expect(await limiters.caching.limit('key')).toMatchObject({ success: true })
    }
  })

  test.each([false, true])('by the release of what was spent, in a transaction: %s', async (joins) => {
    const { caching } = pair()
    const spent = await spend([{ ratelimit: caching, key: 'key' }], { rate: 7 })
    expect(await caching.limit('key')).toMatchObject({ success: false })
    if (joins) await database.db.transaction((tx) => spent.release({ tx }))
    else await spent.release()
    expect(await caching.limit('key')).toMatchObject({ success: true })
  })

  test('by a refund that may have happened', async () => {
    const { common } = pair()
    let isCut = false
    const { db } = watch(database.db)
    const cutting: Database = {
      ...db,
      execute: async (query) => {
        const result = await db.execute(query)
        if (isCut) throw Object.assign(new Error('cut'), { code: '08006' })
        return result
      },
    }
    const caching = new Ratelimit({ ...common, db: cutting, inMemoryBlock: true })
    await caching.limit('key', { rate: 7 })
    expect(await caching.limit('key')).toMatchObject({ success: false })
    isCut = true
    await expect(caching.limit('key', { rate: -1 })).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    isCut = false
    expect(await caching.limit('key')).toMatchObject({ success: true })
  })

  test('by a release that may have happened', async () => {
    const { common } = pair()
    let isCut = false
    const cut = Object.assign(new Error('cut'), { code: '08006' })
    const { db } = watch(database.db)
    const cutting: typeof db = {
      ...db,
      execute: async (query) => {
        const result = await db.execute(query)
        if (isCut) throw cut
        return result
      },
    }
    const caching = new Ratelimit({ ...common, db: cutting, inMemoryBlock: true })
    const spent = await spend([{ ratelimit: caching, key: 'key' }], { rate: 7 })
    expect(await caching.limit('key')).toMatchObject({ success: false })
    isCut = true
    await expect(spent.release()).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    isCut = false
    expect(await caching.limit('key')).toMatchObject({ success: true })
  })

  test('by a refund that overtakes the denial on its way', async () => {
    let deliver = () => {}
    const late: Database = {
      ...watch(database.db).db,
      execute: async (query) => {
        const result = await database.db.execute(query)
        await new Promise<void>((resolve) => {
          deliver = resolve
        })
        return result
      },
    }
    const { asking, common } = pair()
    const caching = new Ratelimit({ ...common, db: late, inMemoryBlock: true })
    await asking.limit('key', { rate: 7 })
    const denied = caching.limit('key')
    await vi.waitUntil(() => deliver.length === 1, PATIENTLY)
    await asking.limit('key', { rate: -1 })
    deliver()
    expect(await denied).toMatchObject({ success: false })
    const next = caching.limit('key')
    deliver = () => {}
    await vi.waitUntil(() => deliver.length === 1, PATIENTLY)
    deliver()
    expect(await next).toMatchObject({ success: true })
  })
})

describe("a denial is forgotten when something is given back after its caller's timeout,", () => {
  let stalls = false
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
  afterEach(() => void vi.useRealTimers())

  test.each<[string, (one: Ratelimit) => Promise<unknown>]>([
    ['by a refund', (one) => one.limit('key', { rate: -1 })],
    ['by a reset', (one) => one.resetUsedTokens('key')],
    ['by limitAll', (one) => limitAll([{ ratelimit: one, key: 'key', rate: -1 }])],
    [
      'by the release of what was spent',
      async (one) => {
        const spent = await spend([{ ratelimit: one, key: 'key' }], { rate: 1 })
        stalls = true
        await spent.release()
      },
    ],
  ])('%s', async (way, giveBack) => {
    const { caching, common, statements } = pair()
    const gate: { open?: () => void } = {}
    const { db } = watch(database.db, async (text) => {
      if (stalls && /^delete|for update/.test(text))
        await new Promise<void>((open) => Object.assign(gate, { open }))
    })
    // PGlite has one connection, which a transaction would keep.
    const begun: Database = { ...db, transaction: (work) => work({ ...db, rollback: undefined }) }
    const late = new Ratelimit({ ...common, db: begun, timeout: 60_000 })
    stalls = false
    await caching.limit('key', { rate: 6 })
    const isSpend = way.includes('spent')
    if (!isSpend) await caching.limit('key')
    stalls = !isSpend
    const given = giveBack(late).catch((error: unknown) => error)
    await vi.waitUntil(() => gate.open, PATIENTLY)
    // Only timers are fake. What spending took by the real clock comes on top.
    vi.advanceTimersByTime(120_000)
    expect(await given).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    expect(await caching.limit('key')).toMatchObject({ success: false })
    const sent = statements.length
    expect(await caching.limit('key')).toMatchObject({ success: false })
    expect(statements).toHaveLength(sent)
    gate.open?.()
    await vi.waitUntil(async () => (await caching.limit('key')).success, PATIENTLY)
  })
})

test('a denial is forgotten when a reset times out, because it may have happened', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const { caching, common } = pair()
  await caching.limit('key', { rate: 7 })
  expect(await caching.limit('key')).toMatchObject({ success: false })
  let isReset = false
  const silent: Database = {
    ...watch(database.db).db,
    execute: async (query) => {
      await database.db.execute(query)
      isReset = true
      return new Promise(() => {})
    },
  }
  const late = new Ratelimit({ ...common, db: silent, timeout: 60_000 })
  const reset = late.resetUsedTokens('key').catch((error: unknown) => error)
  await vi.waitUntil(() => isReset, PATIENTLY)
  vi.advanceTimersByTime(60_000)
  vi.useRealTimers()
  expect(await reset).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  expect(await caching.limit('key')).toMatchObject({ success: true })
})

test('spend always asks the database, and its denials are not remembered', async () => {
  const { caching, asking } = pair()
  const spendFor = () => spend([{ ratelimit: caching, key: 'key' }], { rate: 2 })
  await caching.limit('key', { rate: 6 })
  expect(await caching.limit('key', { rate: 2 })).toMatchObject({ success: false })
  expect(await spendFor()).toMatchObject({ success: false })
  await asking.limit('key', { rate: -1 })
  expect(await spendFor()).toMatchObject({ success: true })
})

test('nothing is remembered from a transaction, which may be rolled back', async () => {
  const { caching } = pair()
  await expect(
    database.db.transaction(async (tx) => {
      await caching.limit('key', { rate: 7, tx })
      expect(await caching.limit('key', { tx })).toMatchObject({ success: false })
      throw new Error('rolled back')
    }),
  ).rejects.toThrow()
  expect(await caching.limit('key')).toMatchObject({ success: true })
})

test('a transaction is always asked, whatever is remembered', async () => {
  const { caching } = pair()
  await caching.limit('key', { rate: 7 })
  await caching.limit('key')
  await database.db.transaction(async (tx) => {
    await tx.execute(`delete from rate_limit_ephemeral where prefix = '${caching.prefix}'`)
    expect(await caching.limit('key', { tx })).toMatchObject({ success: true })
  })
})

describe('by the clock of the database', () => {
  afterEach(() => void vi.restoreAllMocks())

  test('a denial lasts as long as it said, counted from the moment the call was sent', async () => {
    let monotonic = 1000
    vi.spyOn(performance, 'now').mockImplementation(() => monotonic)
    const { db, statements } = watch(database.db, () => {
      monotonic += 50
    })
    const caching = new Ratelimit({
      ...{ db, limiter: Ratelimit.fixedWindow(1, '1h'), prefix: `deny ${prefixes++}` },
      ...{ inMemoryBlock: true, cleanupProbability: 0 },
    })
    await caching.limit('key')
    const sent = monotonic
    const { retryAfter, reset } = await caching.limit('key')
    const asked = statements.length
    monotonic += 1000.25
    // It may have been decided as late as it was received, so no less is left.
    expect(await caching.limit('key')).toMatchObject({ retryAfter: retryAfter - 1000, reset })
    // And as early as it was sent, 50 ms before: from then on the database is asked.
    monotonic = sent + retryAfter - 0.25
    await caching.limit('key')
    expect(statements).toHaveLength(asked)
    monotonic = sent + retryAfter
    await caching.limit('key')
    expect(statements).toHaveLength(asked + 1)
  })
})

describe('on a machine that was suspended', () => {
  afterEach(() => void vi.useRealTimers())

  test('the database is asked again when the time is over by the wall clock', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'performance'] })
    const { caching, statements } = pair()
    await caching.limit('key', { rate: 7 })
    const { retryAfter } = await caching.limit('key')
    const known = statements.length
    // The monotonic clock stands still meanwhile.
    vi.setSystemTime(Date.now() + retryAfter - 60_000)
    // The wall clock is read in whole milliseconds, so it may be one less.
    expect(await caching.limit('key')).toMatchObject({ success: false, retryAfter: 60_001 })
    expect(statements).toHaveLength(known)
    vi.setSystemTime(Date.now() + 60_000)
    await caching.limit('key')
    expect(statements).toHaveLength(known + 1)
  })
})

test('the database is asked when an injected clock goes back', async () => {
  const clock = new TestClock()
  const { caching, statements } = pair(HOURLY, clock)
  await caching.limit('key', { rate: 7 })
  await caching.limit('key')
  clock.advance(-1)
  await caching.limit('key')
  expect(statements).toHaveLength(4)
})

test('at most maxBlockedKeys are remembered: the latest ones', async () => {
  const { common } = pair()
  const { db, statements } = watch(database.db)
  const caching = new Ratelimit({ ...common, db, inMemoryBlock: true, maxBlockedKeys: 2 })
  for (const key of ['a', 'b', 'c']) await caching.limit(key, { rate: 7 })
  for (const key of ['a', 'b', 'a', 'c']) await caching.limit(key)
  expect(statements).toHaveLength(9)
  await caching.limit('a')
  expect(statements).toHaveLength(9)
  await caching.limit('b')
  expect(statements).toHaveLength(10)
})

test('without inMemoryBlock no denial is remembered', async () => {
  const { common } = pair()
  const { db, statements } = watch(database.db)
  const plain = new Ratelimit({ ...common, db })
  await plain.limit('key', { rate: 7 })
  for (let i = 0; i < 3; i++) await plain.limit('key')
  expect(statements).toHaveLength(2 + 3)
})

test('a refund of limitAll in a transaction ends the remembered denial', async () => {
  const { caching } = pair()
  await caching.limit('key', { rate: 7 })
  expect(await caching.limit('key')).toMatchObject({ success: false })
  await database.db.transaction((tx) => limitAll([{ ratelimit: caching, key: 'key', rate: -2 }], { tx }))
  expect(await caching.limit('key')).toMatchObject({ success: true, remaining: 1 })
})
