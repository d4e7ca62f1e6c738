import { type Scheduled, type ScheduleOptions, schedule } from 'drizzle-ratelimit/schedule'
import { beforeEach, describe, expect, test } from 'vitest'
import { type Database, type Limiter, Ratelimit } from '../../../src/index.ts'
import { allowed } from '../../support/allowed.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

// A start that is given once for an id, however often its call is repeated.

const database = useDatabase()
let clock: TestClock
beforeEach(() => {
  clock = new TestClock(1_000_000)
})

const HUNDRED_MS: Limiter = Ratelimit.gcra(10, '1s', { burst: 1 })
const once = { id: 'job', for: '1h' } as const
const within = '10s'

let prefixes = 0
function partner({ db = database.db as Database, limiter = HUNDRED_MS, prefix = `once ${prefixes++}` } = {}) {
  return new Ratelimit({ db, limiter, prefix, clock: clock.now, cleanupProbability: 0 })
}

async function begin(ratelimit: Ratelimit, options: Partial<ScheduleOptions> = {}): Promise<Scheduled> {
  const turn = allowed(await schedule(ratelimit, 'key', { within, ...options }))
  return turn
}

async function startOf(ratelimit: Ratelimit, options: Partial<ScheduleOptions> = {}): Promise<object> {
  const { success: _, cancel, ...start } = await begin(ratelimit, options)
  return start
}

test.each([
  ['gcra', HUNDRED_MS],
  ['gcra of thirds', Ratelimit.gcra(3, '1s', { burst: 1 })],
  ['a bucket', Ratelimit.tokenBucket(1, '1s', 2)],
  ['a continuous bucket', Ratelimit.tokenBucket(7, '1s', 2, { refill: 'continuous' })],
  ['no limit', Ratelimit.unlimited()],
])('%s: an id has one start, which a repeated call finds, and is charged once', async (_, limiter) => {
  const [ratelimit, plain] = [partner({ limiter }), partner({ limiter })]
  for (const each of [ratelimit, plain]) for (let i = 0; i < 3; i++) await begin(each)
  const first = await startOf(ratelimit, { once })
  expect(first).toEqual(await startOf(plain))
  expect(await startOf(ratelimit, { once })).toEqual({ ...first, repeated: true })
  expect(await startOf(ratelimit)).toEqual(await startOf(plain))
  clock.advance(60_000)
  const { startsAt } = first as Scheduled
  expect(await startOf(ratelimit, { once })).toEqual({ startsAt, delay: 0, repeated: true })
  expect(await startOf(ratelimit, { once: { ...once, id: 'other' } })).toEqual(await startOf(plain))
})

test('a denial does not use up the id, and a repeated call has its start though it would be denied', async () => {
  const ratelimit = partner()
  await begin(ratelimit, { rate: 1 })
  const denied = { success: false, retryAfter: 100 }
  const rows = () => database.rows('select * from rate_limit_ephemeral where prefix like $1', ['%once%'])
  const before = await rows()
  expect(await schedule(ratelimit, 'key', { within: 0, once })).toEqual(denied)
  expect(await rows()).toEqual(before)
  clock.advance(100)
  expect(await begin(ratelimit, { within: 0, once })).not.toHaveProperty('repeated')
  expect(await schedule(ratelimit, 'key', { within: 0, once })).toMatchObject({ repeated: true, delay: 0 })
  expect(await schedule(ratelimit, 'key', { within: 0 })).toEqual(denied)
})

test('an id is remembered for its time from the call, and from its start', async () => {
  const ratelimit = partner()
  for (let i = 0; i < 100; i++) await begin(ratelimit)
  const first = await begin(ratelimit, { once: { id: 'job', for: 1000 } })
  expect(first.delay).toBe(10_000)
  clock.advance(1000 + 10_000 + 9_999)
  // Its own start would be too late to count as the same.
  const short = { once: { id: 'job', for: 1000 } }
  expect(await begin(ratelimit, short)).toMatchObject({ repeated: true, startsAt: first.startsAt })
  clock.advance(1)
  expect(await begin(ratelimit, short)).not.toHaveProperty('repeated')
})

test.each(['key', 'other'])(
  'a call of %s that may wait for less time has the start of the first',
  async (key) => {
    const ratelimit = partner()
    for (let i = 0; i < 100; i++) await begin(ratelimit)
    const short = { id: 'job', for: 1000 }
    const { startsAt } = await begin(ratelimit, { once: short })
    const again = await schedule(ratelimit, key, { within: 0, once: short })
    expect(again).toMatchObject({ repeated: true, delay: 10_000, startsAt })
  },
)

test('a bucket that begins empty begins to fill by a denied call with an id', async () => {
  const limiter = Ratelimit.tokenBucket(1, '1s', 2, { initialTokens: 0 })
  const [ratelimit, plain] = [partner({ limiter }), partner({ limiter })]
  for (const options of [{ within: 0 }, { within: 0, once }]) {
    const each = options.once ? ratelimit : plain
    expect(await schedule(each, 'key', options)).toEqual({ success: false, retryAfter: 1000 })
    clock.advance(1000)
    expect(await schedule(each, 'key', options)).toMatchObject({ success: true })
  }
})

test('a rate of 0 looks, and does not use up the id', async () => {
  const ratelimit = partner()
  expect(await startOf(ratelimit, { rate: 0, once })).toEqual({ delay: 0, startsAt: clock.ms })
  const first = await startOf(ratelimit, { once })
  expect(await startOf(ratelimit, { rate: 0, once })).toEqual({ ...first, repeated: true })
})

test('the ids are those of `limit`', async () => {
  const ratelimit = partner()
  await ratelimit.limit('key', { once })
  expect(await startOf(ratelimit, { once })).toMatchObject({ repeated: true, delay: 0 })
  await begin(ratelimit, { once: { ...once, id: 'other' } })
  expect(await ratelimit.limit('key', { once: { ...once, id: 'other' } })).toMatchObject({ repeated: true })
})

test('a retry after a lost answer finds the start', async () => {
  let loses = false
  const losing = (db: Database): Database => ({
    ...db,
    execute: (query) => db.execute(query),
    refreshMaterializedView: undefined,
    transaction: async (work, config) => {
      const result = await db.transaction(work, config)
      if (loses) throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
      return result
    },
  })
  const ratelimit = partner({ db: losing(database.db) })
  await begin(ratelimit)
  loses = true
  await expect(begin(ratelimit, { once })).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  loses = false
  expect(await startOf(ratelimit, { once })).toEqual({ startsAt: clock.ms + 100, delay: 100, repeated: true })
  expect((await begin(ratelimit)).delay).toBe(200)
})

describe('in a transaction', () => {
  test('charge and id commit together', async () => {
    const ratelimit = partner()
    const first = await database.db.transaction((tx) => startOf(ratelimit, { tx, once }))
    expect(await startOf(ratelimit, { once })).toEqual({ ...first, repeated: true })
    const again = await database.db.transaction((tx) => startOf(ratelimit, { tx, once }))
    expect(again).toEqual({ ...first, repeated: true })
  })

  test('a rollback frees the id', async () => {
    const ratelimit = partner()
    await undone(database.db, async (tx) => {
      await begin(ratelimit, { tx, once })
    })
    expect(await startOf(ratelimit, { once })).toEqual({ startsAt: clock.ms, delay: 0 })
  })

  test('a denial leaves the rest of the transaction, and no row', async () => {
    const ratelimit = partner()
    await database.db.transaction(async (tx) => {
      await begin(ratelimit, { tx })
      expect(await schedule(ratelimit, 'key', { within: 0, tx, once })).toMatchObject({ success: false })
    })
    expect((await begin(ratelimit, { once })).delay).toBe(100)
  })
})

describe('cancel', () => {
  test('frees the id, and of the answers with it one gives back', async () => {
    const ratelimit = partner()
    await begin(ratelimit)
    const [first, again] = [await begin(ratelimit, { once }), await begin(ratelimit, { once })]
    expect([await again.cancel(), await first.cancel(), await again.cancel()]).toEqual([true, false, false])
    const next = await begin(ratelimit, { once })
    expect(next).toMatchObject({ delay: 100 })
    expect(next).not.toHaveProperty('repeated')
    // It is another start by now, although it is at the same time.
    expect((await begin(ratelimit)).delay).toBe(200)
  })

  test('of a start that is not the one of the id any more gives nothing back', async () => {
    const ratelimit = partner()
    await begin(ratelimit)
    const [first, again] = [await begin(ratelimit, { once }), await begin(ratelimit, { once })]
    await first.cancel()
    await begin(ratelimit)
    expect((await begin(ratelimit, { once })).delay).toBe(200)
    expect(await again.cancel()).toBe(false)
    expect((await begin(ratelimit)).delay).toBe(300)
  })

  test('of an answer whose id was freed and used again leaves the new start, though it is at the same time', async () => {
    const ratelimit = partner()
    await begin(ratelimit)
    const [first, again] = [await begin(ratelimit, { once }), await begin(ratelimit, { once })]
    expect(await again.cancel()).toBe(true)
    expect((await begin(ratelimit, { once })).startsAt).toBe(first.startsAt)
    expect(await first.cancel()).toBe(false)
    expect((await begin(ratelimit)).delay).toBe(200)
  })

  test.each([
    ['another key', 'other', { rate: 1 }],
    ['a higher rate', 'key', { rate: 2 }],
    ['a lower rate', 'key', { rate: 0.5 }],
  ])('of a repeated call with %s gives nothing back', async (_, key, options) => {
    const ratelimit = partner({ limiter: Ratelimit.gcra(10, '1s', { burst: 4 }) })
    for (const each of ['key', 'other']) await schedule(ratelimit, each, { within, rate: 4 })
    const first = await begin(ratelimit, { once })
    // It has a debt of its own that is not the id's.
    await schedule(ratelimit, 'other', { within })
    const wrong = await schedule(ratelimit, key, { within, once, ...options })
    expect(wrong).toMatchObject({ repeated: true, startsAt: first.startsAt })
    const cancelled = wrong.success && (await wrong.cancel())
    expect(cancelled).toBe(false)
    expect(await schedule(ratelimit, 'other', { within })).toMatchObject({ delay: 200 })
    // The same call can still be cancelled, and so its id is free.
    expect(await (await begin(ratelimit, { once })).cancel()).toBe(true)
    const next = await begin(ratelimit, { once })
    expect(next).toMatchObject({ delay: 100 })
    expect(next).not.toHaveProperty('repeated')
  })

  test('gives nothing back from the start on, and keeps the id', async () => {
    const ratelimit = partner()
    await begin(ratelimit)
    const turn = await begin(ratelimit, { once })
    clock.advance(100)
    expect(await turn.cancel()).toBe(false)
    expect(await begin(ratelimit, { once })).toMatchObject({ repeated: true })
  })

  test('that is rolled back leaves charge and id', async () => {
    const ratelimit = partner()
    await begin(ratelimit)
    const turn = await begin(ratelimit, { once })
    await undone(database.db, async (tx) => {
      expect(await turn.cancel({ tx })).toBe(true)
    })
    expect(await startOf(ratelimit, { once })).toMatchObject({ repeated: true, delay: 100 })
  })
})

test('a clock that fails is refused, and nothing rejects where nobody sees it', async () => {
  const { db, statements } = watch(database.db)
  const clock = () => new Date(Number.NaN)
  const ratelimit = new Ratelimit({ db, limiter: HUNDRED_MS, prefix: 'no time', clock })
  await expect(begin(ratelimit, { once })).rejects.toMatchObject({ code: 'INVALID_CLOCK' })
  await new Promise(setImmediate)
  expect(statements).toEqual([])
})

test('an id that Postgres cannot store is refused before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const ratelimit = partner({ db })
  for (const id of ['', '\0', 5 as never])
    await expect(begin(ratelimit, { once: { ...once, id } })).rejects.toMatchObject({
      code: 'INVALID_OPTION',
    })
  const forEver = begin(ratelimit, { once: { id: 'job', for: 'ever' as never } })
  await expect(forEver).rejects.toMatchObject({ code: 'INVALID_DURATION' })
  expect(statements).toEqual([])
})
