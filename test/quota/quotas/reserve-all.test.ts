import { eq } from 'drizzle-orm'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import {
  type CallOptions,
  type Database,
  limitAll,
  Ratelimit,
  type RatelimitConfig,
  rateLimitEphemeral,
} from '../../../src/index.ts'
import {
  type CreditReserveRequest,
  type ReserveRequest,
  reserveAll,
  type SettleAllOptions,
  spend,
} from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { TestClock } from '../../support/clock.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { kinds, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

let prefixes = 0
function limitsOf(db: Database = database.db) {
  const clock = new TestClock()
  const common = { db, clock: clock.now, cleanupProbability: 0 }
  const limits = [
    new Ratelimit({ ...common, limiter: Ratelimit.fixedWindow(5, '1m'), prefix: `all ${prefixes++}` }),
    new Ratelimit({ ...common, limiter: Ratelimit.tokenBucket(1, '1h', 2), prefix: `all ${prefixes++}` }),
    new Ratelimit({ ...common, limiter: Ratelimit.unlimited(), prefix: `all ${prefixes++}` }),
  ]
  const requests = limits.map((ratelimit) => ({ ratelimit, key: 'key' }))
  const used = () => Promise.all(limits.map(async (limit) => (await limit.getRemaining('key')).used))
  return { clock, requests, used }
}

/** What is reserved, which is not denied. */
async function reserve(requests: readonly (ReserveRequest | CreditReserveRequest)[], options = {}) {
  const reserved = allowed(await reserveAll(requests, options))
  return reserved
}

test('all limits are charged, and all get their units back', async () => {
  const { requests, used } = limitsOf()
  const reserved = await reserve(requests)
  expect(reserved).toMatchObject({
    success: true,
    denied: [],
    results: [{ remaining: 4 }, { remaining: 1 }, {}],
  })
  expect(await used()).toEqual([1, 1, 0])
  expect(await reserved.release()).toMatchObject([{ remaining: 5 }, { remaining: 2 }, { success: true }])
  expect(await used()).toEqual([0, 0, 0])
})

test('each limit is settled with its own cost', async () => {
  const { requests, used } = limitsOf()
  const reserved = await reserve(requests.map((request) => ({ ...request, rate: 2 })))
  const settled = await reserved.commit([5, 0.5, 7])
  expect(settled).toMatchObject([
    { success: true, limit: 5, remaining: 0 },
    { success: true, limit: 2, remaining: 1 },
    { success: true, limit: Number.POSITIVE_INFINITY },
  ])
  expect(await used()).toEqual([5, 0.5, 0])
})

test('a cost above the estimate becomes a debt', async () => {
  const { requests, used } = limitsOf()
  const reserved = await reserve(requests)
  expect(await reserved.commit([7, 1, 1])).toMatchObject([
    { success: true, remaining: 0 },
    { remaining: 1 },
    {},
  ])
  expect(await used()).toEqual([7, 1, 0])
})

test('a fractional cost under a plan of whole units keeps no other cost from being settled', async () => {
  const { quota: tokens, clock } = quotaOn(database, Ratelimit.tokenBucket(10, '1h', 10))
  const { credits: cents } = creditsOn(database, { clock: clock.now })
  await cents.grant('key', 100)
  const reserved = await reserve([
    { ratelimit: tokens, key: 'key', rate: 2.5 },
    { ratelimit: cents, key: 'key', rate: 12 },
  ])
  const plan = calendarWindow(100, 'month')
  expect(await reserved.commit([4, 20], { limiters: [plan, undefined] })).toMatchObject([
    { limit: 100, remaining: 98 },
    { remaining: 80 },
  ])
})

test('a key that was reset meanwhile pays what its cost is above the estimate', async () => {
  const { quota } = quotaOn(database, TEN['calendar month'])
  const requests = ['a', 'b'].map((key) => ({ ratelimit: quota, key, rate: 2 }))
  const reserved = await reserve(requests)
  await quota.resetUsedTokens('a')
  await reserved.commit([5, 5])
  expect(await quota.getRemainingAll(['a', 'b'])).toMatchObject([{ used: 3 }, { used: 5 }])
})

test('a reservation of several limits is settled once', async () => {
  const { requests, used } = limitsOf()
  const reserved = await reserve(requests)
  const both = [reserved.commit([2, 2, 0]), reserved.release()]
  expect(await Promise.allSettled(both)).toMatchObject([
    { status: 'fulfilled' },
    { status: 'rejected', reason: { code: 'ALREADY_SETTLED' } },
  ])
  await expect(reserved.commit([1, 1, 1])).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  expect(await used()).toEqual([2, 2, 0])
})

test('invalid costs are refused before any SQL, and may be corrected', async () => {
  const { db, statements } = watch(database.db)
  const { requests, used } = limitsOf(db)
  const reserved = await reserve(requests)
  statements.length = 0
  const untyped = undefined as unknown as number[]
  for (const actuals of [[], [1, 1], [1, 1, 1, 1], untyped]) {
    await expect(reserved.commit(actuals)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  }
  for (const actuals of [
    [1, -1, 1],
    [0.5, 1, 1],
    [1, Number.NaN, 1],
    [1, Number.POSITIVE_INFINITY, 1],
    new Array<number>(3),
  ]) {
    await expect(reserved.commit(actuals)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  }
  expect(statements).toEqual([])
  await reserved.commit([3, 2, 1])
  expect(await used()).toEqual([3, 2, 0])
})

test('plans that do not fit the requests are refused before any SQL, and may be corrected', async () => {
  const { db, statements } = watch(database.db)
  for (const options of [{}, { id: 'job', expires: '1d' } as const]) {
    const { requests } = limitsOf(db)
    const [window, bucket] = requests
    if (!window || !bucket) throw new Error('no requests')
    const both = [window, bucket]
    const reserved = await reserve(both, options)
    const spent = await spend(both, { rate: 1 })
    const alone = await window.ratelimit.reserve('key')
    if (!spent.success || !alone.success) throw new Error('denied')
    const plan = Ratelimit.fixedWindow(9, '1m')
    statements.length = 0
    const refused = (call: Promise<unknown>) => expect(call).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    for (const limiters of [[], [plan], [plan, undefined, plan], [null, undefined], [undefined, 5], null]) {
      const given = { limiters } as unknown as SettleAllOptions
      await refused(reserved.commit([1, 1], given))
      await refused(reserved.release(given))
      await refused(spent.commit(1, given))
      await refused(spent.release(given))
    }
    await refused(alone.commit(1, { limiter: null } as unknown as CallOptions))
    expect(statements).toEqual([])
    expect(await reserved.commit([1, 1], { limiters: [plan, undefined] })).toMatchObject([{ limit: 9 }, {}])
    expect(await spent.release({ limiters: undefined })).toMatchObject({ results: [{}, {}] })
  }
})

test('a denial charges nothing, and there is nothing to give back', async () => {
  const { requests, used } = limitsOf()
  const [one, two] = requests
  if (!one || !two) throw new Error('no requests')
  await limitAll([one, { ...two, rate: 2 }])
  const denied = await reserveAll(requests)
  expect(denied).toMatchObject({ success: false, denied: [two] })
  expect(denied).not.toHaveProperty('commit')
  expect(await used()).toEqual([1, 2, 0])
})

test('calls for one row give back each its own', async () => {
  const { requests, used } = limitsOf()
  const [one] = requests
  if (!one) throw new Error('no requests')
  await one.ratelimit.limit('key')
  const reserved = await reserve([{ ...one, rate: 3 }, one])
  expect(await used()).toEqual([5, 0, 0])
  await reserved.release()
  expect(await used()).toEqual([1, 0, 0])
  const again = await reserve([{ ...one, rate: 3 }, one])
  // What the one lacks, the other leaves.
  expect(await again.commit([0, 4])).toMatchObject([{ remaining: 0 }, { remaining: 0 }])
  expect(await used()).toEqual([5, 0, 0])
})

test('the next window gives nothing back', async () => {
  const { clock, requests, used } = limitsOf()
  const reserved = await reserve(requests)
  clock.advance(60_000)
  await limitAll(requests)
  await reserved.release()
  expect(await used()).toEqual([1, 1, 0])
})

test('a negative rate is refused', async () => {
  const [one] = limitsOf().requests
  if (!one) throw new Error('no requests')
  const refused = reserveAll([{ ...one, rate: -1 }])
  await expect(refused).rejects.toMatchObject({ code: 'INVALID_RATE' })
})

test('if one limit cannot be settled, none is, and another call settles all', async () => {
  let isAway = false
  const away = Object.assign(new Error('away'), { code: 'ECONNREFUSED', syscall: 'connect' })
  const { db } = watch(database.db, () => isAway && Promise.reject(away))
  const { requests, used } = limitsOf(db)
  const reserved = await reserve(requests)
  isAway = true
  await expect(reserved.commit([3, 2, 0])).rejects.toMatchObject({ code: 'UNREACHABLE' })
  isAway = false
  expect(await used()).toEqual([1, 1, 0])
  expect(await reserved.commit([3, 2, 0])).toMatchObject([{ remaining: 2 }, { remaining: 0 }, {}])
  expect(await used()).toEqual([3, 2, 0])
})

test.each([0, 1, 2])(
  'if the clock of limit %d fails, nothing is charged, and another call settles all',
  async (place) => {
    let fails = false
    const clock = new TestClock()
    const failing = () => {
      if (fails) throw new Error('no time')
      return clock.now()
    }
    const limiters = [
      Ratelimit.fixedWindow(5, '1m'),
      Ratelimit.tokenBucket(1, '1h', 5),
      Ratelimit.unlimited(),
    ]
    const limits = limiters.map((limiter, index) => {
      const common = { db: database.db, limiter, prefix: `all ${prefixes++}`, cleanupProbability: 0 }
      return new Ratelimit({ ...common, clock: index === place ? failing : clock.now })
    })
    const requests = limits.map((ratelimit) => ({ ratelimit, key: 'key' }))
    const used = async () => {
      fails = false
      return Promise.all(limits.map(async (limit) => (await limit.getRemaining('key')).used))
    }
    const reserved = await reserve(requests)
    const noTime = { code: 'INVALID_CLOCK', cause: { message: 'no time' } }
    const fresh = requests.map((request) => ({ ...request, key: 'fresh' }))
    const calls = [
      () => reserved.commit([3, 3, 3]),
      () => limitAll(requests),
      () => spend(fresh, { rate: 1 }),
      () => database.db.transaction((tx) => limitAll(fresh, { tx }).catch((error) => error)),
    ]
    for (const call of calls) {
      fails = true
      const error = await call().catch((thrown: unknown) => thrown)
      expect(error).toMatchObject(noTime)
      expect(await used()).toEqual([1, 1, 0])
    }
    const isFresh = eq(rateLimitEphemeral.key, 'fresh')
    const rows = await database.db.select().from(rateLimitEphemeral).where(isFresh)
    expect(rows).toEqual([])
    await reserved.commit([3, 3, 3])
    expect(await used()).toEqual([3, 3, 0])
  },
)

test('it is settled in a transaction, and after a rollback it may be settled again', async () => {
  const { requests, used } = limitsOf()
  const [kept, released] = [await reserve(requests), await reserve(requests)]
  await database.db.transaction((tx) => kept.commit([3, 0, 0], { tx }))
  expect(await used()).toEqual([4, 1, 0])
  await undone(database.db, async (tx) => {
    await released.release({ tx })
  })
  expect(await used()).toEqual([4, 1, 0])
  await released.release()
  expect(await used()).toEqual([3, 0, 0])
  for (const each of [kept, released]) {
    await expect(each.release()).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  }
})

test('it takes one statement', async () => {
  const { db, statements } = watch(database.db)
  const { requests } = limitsOf(db)
  const reserved = await reserve(requests)
  const before = statements.length
  await reserved.commit([2, 2, 0])
  expect(statements.length - before).toBe(1)
})

describe.each(kinds)('$name', ({ limiter }) => {
  test('settles as single reservations do', async () => {
    for (const [actual, later] of [
      [2, 0],
      [9, 0],
      [0, 0],
      [4, 0],
      [2, 1],
      [9, 1],
    ] as const) {
      const [alone, together] = [quotaOn(database, limiter), quotaOn(database, limiter)]
      const one = await alone.quota.reserve('key', { rate: 4 })
      const all = await reserve([{ ratelimit: together.quota, key: 'key', rate: 4 }])
      if (!one.success) throw new Error('denied')
      // In the next period, the first has not paid for it.
      for (const { clock, quota } of [alone, together]) {
        clock.ms += later * (one.reset - clock.ms)
        if (later) await quota.limit('key')
      }
      expect(await all.commit([actual])).toEqual([await one.commit(actual)])
      expect(await together.quota.getRemaining('key')).toEqual(await alone.quota.getRemaining('key'))
    }
  })

  test.each([
    [3, 6],
    [4, 4],
    [1, 7],
  ])('thresholds are reported once for a row: %d and %d', async (...actuals) => {
    const { quota } = quotaOn(database, limiter, { thresholds: [0.5, 0.8, 1] })
    const request = { ratelimit: quota, key: 'key', rate: 4 }
    const reserved = await reserve([request, request])
    const settled = await reserved.commit(actuals)
    expect(settled.map(({ crossed }) => crossed)).toEqual([[0.5, 0.8], undefined])
    expect(await quota.limit('key', { rate: 2, force: true })).toMatchObject({ crossed: [1] })
  })
})

test('the period that a commit ends is reported once', async () => {
  const { clock, quota } = quotaOn(database, TEN['fixed window'])
  const request = { ratelimit: quota, key: 'key', rate: 4 }
  const reserved = await reserve([request, request])
  clock.ms = reserved.results[0]?.reset ?? 0
  const settled = await reserved.commit([4, 6])
  expect(settled.map(({ ended }) => ended?.used)).toEqual([8, undefined])
  expect(await quota.getRemaining('key')).toMatchObject({ used: 2 })
})

test('credits and a month are both charged, or neither is', async () => {
  const { credits } = creditsOn(database)
  const { quota: month } = quotaOn(database, calendarWindow(10, 'month'))
  await credits.grant('key', 100)
  const requests = [credits, month].map((ratelimit) => ({ ratelimit, key: 'key', rate: 10 }))
  const reserved = await reserve(requests)
  await reserved.commit([120, 4])
  expect(await credits.getRemaining('key')).toMatchObject({ used: 120, remaining: 0 })
  expect(await month.getRemaining('key')).toMatchObject({ used: 4 })
})

test('a dry run settles nothing that it would have denied', async () => {
  const options: Partial<RatelimitConfig> = { dryRun: true }
  const { quota } = quotaOn(database, TEN['fixed window'], options)
  const requests = [1, 11].map((rate, place) => ({ ratelimit: quota, key: `key ${place}`, rate }))
  const reserved = await reserve(requests)
  await reserved.commit([3, 12])
  expect(await quota.getRemaining('key 0')).toMatchObject({ used: 3 })
  expect(await quota.getRemaining('key 1')).toMatchObject({ used: 0 })
})

test('during an outage a commit throws, whatever onError says', async () => {
  let isAway = false
  const away = Object.assign(new Error('away'), { code: 'ECONNREFUSED', syscall: 'connect' })
  const { db } = watch(database.db, () => isAway && Promise.reject(away))
  const { quota } = quotaOn(database, TEN['fixed window'], { db, onError: 'allow' })
  const reserved = await reserve([{ ratelimit: quota, key: 'key' }])
  isAway = true
  await expect(reserved.commit([5])).rejects.toMatchObject({ code: 'UNREACHABLE' })
  isAway = false
  await reserved.commit([5])
  expect(await quota.getRemaining('key')).toMatchObject({ used: 5 })
})

test('a rollback undoes the charge', async () => {
  const { requests, used } = limitsOf()
  await undone(database.db, async (tx) => {
    expect(await reserveAll(requests, { tx })).toMatchObject({ success: true })
  })
  expect(await used()).toEqual([0, 0, 0])
})
