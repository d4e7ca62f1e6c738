import fc from 'fast-check'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, limitAll, Ratelimit, RatelimitError } from '../../../src/index.ts'
import { spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { HOUR_MS, quotaOn } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const RELEASED = { code: 'ALREADY_SETTLED' }

async function monthAndCredits(credits: number, month: Limiter = calendarWindow(10, 'month')) {
  const { quota: monthly, clock } = quotaOn(database, month)
  const balance = creditsOn(database, { clock: clock.now }).credits
  if (credits > 0) await balance.grant('key', credits)
  const requests = [monthly, balance].map((ratelimit) => ({ ratelimit, key: 'key' }))
  const used = () =>
    Promise.all(requests.map(async ({ ratelimit }) => (await ratelimit.getRemaining('key')).used))
  return { requests, used, clock, monthly, balance }
}

test('the month is spent first, then the credits', async () => {
  const { requests, used } = await monthAndCredits(100)
  expect(await spend(requests, { rate: 7 })).toMatchObject({ success: true, granted: [7, 0] })
  expect(await spend(requests, { rate: 7 })).toMatchObject({
    ...{ success: true, granted: [3, 4], retryAfter: 0 },
    results: [
      { success: true, remaining: 0 },
      { success: true, remaining: 96 },
    ],
  })
  expect(await spend(requests, { rate: 7 })).toMatchObject({ granted: [0, 7] })
  expect(await used()).toEqual([10, 11])
})

test('if both together have too little, nothing is taken until the month has enough', async () => {
  const { requests, used, clock } = await monthAndCredits(4)
  await spend(requests, { rate: 9 })
  const denied = await spend(requests, { rate: 6 })
  expect(denied).toMatchObject({
    success: false,
    granted: [0, 0],
    results: [{ remaining: 1 }, { remaining: 4 }],
  })
  expect(denied.retryAfter).toBe(Date.UTC(2026, 1, 1) - clock.ms)
  expect(await used()).toEqual([9, 0])
  clock.advance(denied.retryAfter - 1)
  expect(await spend(requests, { rate: 6 })).toMatchObject({ success: false, retryAfter: 1 })
  clock.advance(1)
  expect(await spend(requests, { rate: 6 })).toMatchObject({ success: true, granted: [6, 0] })
  expect(await spend(requests, { rate: 15 })).toMatchObject({ success: false, retryAfter: Infinity })
})

test('if both together have too little, nothing is written', async () => {
  const { requests, monthly, balance } = await monthAndCredits(4)
  await monthly.limit('key', { rate: 9 })
  const written = async () => {
    const prefixes = `'${monthly.prefix}', '${balance.prefix}'`
    const inTables = ['ephemeral', 'durable'].map((name) =>
      database.rows(
        `select xmin::text, * from rate_limit_${name} where prefix in (${prefixes}) order by prefix`,
      ),
    )
    return (await Promise.all(inTables)).flat()
  }
  const before = await written()
  expect(before).toHaveLength(2)
  expect(await spend(requests, { rate: 6 })).toMatchObject({ success: false })
  expect(await written()).toEqual(before)
})

test('release gives each limit its part back, once, in the window that paid', async () => {
  const { requests, used, clock } = await monthAndCredits(100)
  const spent = await spend(requests, { rate: 15 })
  await spent.release()
  await expect(spent.release()).rejects.toMatchObject(RELEASED)
  expect(await used()).toEqual([0, 0])
  const late = await spend(requests, { rate: 15 })
  clock.ms = Date.UTC(2026, 1, 1)
  await spend(requests, { rate: 2 })
  await late.release()
  expect(await used()).toEqual([2, 0])
})

test('a second release gives back nothing that others have spent', async () => {
  const { requests, used } = await monthAndCredits(100)
  const first = await spend(requests, { rate: 8 })
  await spend(requests, { rate: 8 })
  await first.release()
  await expect(first.release()).rejects.toMatchObject(RELEASED)
  expect(await used()).toEqual([2, 6])
})

test('the second of two releases at once is refused', async () => {
  const { requests, used } = await monthAndCredits(100)
  const spent = await spend(requests, { rate: 15 })
  await spend(requests, { rate: 2 })
  expect(await Promise.allSettled([spent.release(), spent.release()])).toMatchObject([
    { status: 'fulfilled' },
    { status: 'rejected', reason: RELEASED },
  ])
  expect(await used()).toEqual([0, 2])
})

test('after a denial there is nothing to release, however often', async () => {
  const { requests, used } = await monthAndCredits(4)
  await spend(requests, { rate: 12 })
  const denied = await spend(requests, { rate: 3 })
  await Promise.all([denied.release(), denied.release()])
  await denied.release()
  expect(await used()).toEqual([10, 2])
})

test('a release that failed may be called again', async () => {
  let error: RatelimitError | undefined
  const { db } = watch(database.db, () => {
    if (error) throw error
  })
  const { quota } = quotaOn(database, Ratelimit.fixedWindow(10, '10h'), { db })
  const requests = [{ ratelimit: quota, key: 'key' }]
  const spent = await spend(requests, { rate: 4 })
  await spend(requests, { rate: 3 })
  error = new RatelimitError('UNREACHABLE', 'away')
  await expect(spent.release()).rejects.toMatchObject({ code: 'UNREACHABLE' })
  error = undefined
  await spent.release()
  expect(await quota.getRemaining('key')).toMatchObject({ used: 3 })
})

test('a release that may have happened is refused', async () => {
  let isCut = false
  const cut = Object.assign(new Error('cut'), { code: '08006' })
  const { db: cutting } = watch(database.db, () => isCut && Promise.reject(cut))
  const { quota } = quotaOn(database, Ratelimit.fixedWindow(10, '10h'), { db: cutting })
  const requests = [{ ratelimit: quota, key: 'key' }]
  const spent = await spend(requests, { rate: 4 })
  await spend(requests, { rate: 3 })
  isCut = true
  await expect(spent.release()).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  isCut = false
  await expect(spent.release()).rejects.toMatchObject(RELEASED)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 7 })
})

test('two keys of one limiter, and one key of two limiters, each give their own part', async () => {
  const { quota } = quotaOn(database, Ratelimit.fixedWindow(10, '10h'))
  const { quota: other } = quotaOn(database, Ratelimit.fixedWindow(5, '10h'))
  const requests = [
    { ratelimit: quota, key: 'a' },
    { ratelimit: quota, key: 'b' },
    { ratelimit: other, key: 'b' },
  ]
  const spent = await spend(requests, { rate: 23 })
  expect(spent).toMatchObject({
    granted: [10, 10, 3],
    results: [
      { limit: 10, remaining: 0 },
      { limit: 10, remaining: 0 },
      { limit: 5, remaining: 2 },
    ],
  })
  await spend(requests, { rate: 1 })
  await spent.release()
  await quota.limit('b', { rate: 2 })
  expect(await spend(requests.slice(0, 2), { rate: 14 })).toMatchObject({
    granted: [10, 4],
    results: [{ remaining: 0 }, { remaining: 4 }],
  })
  const left = requests.map(async ({ ratelimit, key }) => (await ratelimit.getRemaining(key)).used)
  expect(await Promise.all(left)).toEqual([10, 6, 1])
})

test('each result answers the part that was asked of its limit', async () => {
  const { quota } = quotaOn(database, Ratelimit.fixedWindow(10, '10h'))
  const { quota: other } = quotaOn(database, Ratelimit.fixedWindow(5, '10h'))
  const requests = [
    { ratelimit: quota, key: 'a' },
    { ratelimit: quota, key: 'b' },
    { ratelimit: other, key: 'b' },
  ]
  expect(await spend(requests, { rate: 12 })).toMatchObject({
    granted: [10, 2, 0],
    results: [{ remaining: 0 }, { remaining: 8 }, { remaining: 5 }],
  })
})

test('a rollback undoes a spend and a release', async () => {
  const { requests, used } = await monthAndCredits(100)
  await undone(database.db, async (tx) => {
    const spent = await spend(requests, { rate: 15, tx })
    await spent.release({ tx })
    expect(await spend(requests, { rate: 12, tx })).toMatchObject({ granted: [10, 2] })
  })
  expect(await used()).toEqual([0, 0])
})

test('a release in a transaction that is rolled back may be made again, until it stays', async () => {
  const { requests, used } = await monthAndCredits(100)
  const spent = await spend(requests, { rate: 12 })
  await undone(database.db, async (tx) => {
    await spent.release({ tx })
    await expect(spent.release({ tx })).rejects.toMatchObject(RELEASED)
  })
  expect(await used()).toEqual([10, 2])
  await spent.release()
  expect(await used()).toEqual([0, 0])
  await expect(spent.release()).rejects.toMatchObject(RELEASED)
})

test('a bucket gives whole units together with a window, and an unlimited plan gives all the rest', async () => {
  const bucket = quotaOn(database, Ratelimit.tokenBucket(1, '1h', 10)).quota
  await bucket.limit('key', { rate: 6.5 })
  const { requests } = await monthAndCredits(1)
  const unlimited = quotaOn(database, Ratelimit.unlimited()).quota
  const all = [{ ratelimit: bucket, key: 'key' }, ...requests, { ratelimit: unlimited, key: 'key' }]
  expect(await spend(all, { rate: 50 })).toMatchObject({ success: true, granted: [3, 10, 1, 36] })
})

test('a limit in debt gives nothing, and its debt is not added to the others', async () => {
  const bucket = quotaOn(database, Ratelimit.tokenBucket(1, '1h', 10, { refill: 'continuous' }))
  const { quota: other } = quotaOn(database, Ratelimit.tokenBucket(1, '1h', 10), { clock: bucket.clock.now })
  await bucket.quota.limit('key', { rate: 12.5, force: true })
  await other.limit('key', { rate: 4 })
  const requests = [bucket.quota, other].map((ratelimit) => ({ ratelimit, key: 'key' }))
  const denied = await spend(requests, { rate: 7 })
  // One of the other's comes back in an hour, while the debt is still there.
  expect(denied).toMatchObject({ success: false, retryAfter: HOUR_MS })
  expect(await spend(requests, { rate: 6 })).toMatchObject({ success: true, granted: [0, 6] })
})

test('a denial has the time at which a bucket that it has just made is whole', async () => {
  const limiter = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 2 })
  const { quota, clock } = quotaOn(database, limiter)
  const denied = await spend([{ ratelimit: quota, key: 'key' }], { rate: 5 })
  const reset = clock.ms + 8 * HOUR_MS
  expect(denied).toMatchObject({
    ...{ success: false, retryAfter: 3 * HOUR_MS },
    results: [{ remaining: 2, reset }],
  })
  expect(await quota.getRemaining('key')).toMatchObject({ remaining: 2, reset })
})

test('a bucket that gives nothing begins to fill', async () => {
  const limiter = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 0 })
  const { quota: empty } = quotaOn(database, limiter)
  const { quota: full } = quotaOn(database, Ratelimit.fixedWindow(10, '10h'))
  const requests = [empty, full].map((ratelimit) => ({ ratelimit, key: 'key' }))
  const spent = await spend(requests, { rate: 5 })
  expect(spent).toMatchObject({ success: true, granted: [0, 5] })
  expect(await empty.getRemaining('key')).toMatchObject({ reset: spent.results[0]?.reset })
})

test('fractions of buckets add up to the rate, though doubles do not', async () => {
  const clock = new TestClock()
  const buckets = [0.7, 0.1].map((tokens) => {
    const limiter = Ratelimit.tokenBucket(tokens, '1h', tokens)
    return quotaOn(database, limiter, { clock: clock.now }).quota
  })
  const requests = buckets.map((ratelimit) => ({ ratelimit, key: 'key' }))
  const spendFor = () => spend(requests, { rate: 0.8 })
  expect(await spendFor()).toMatchObject({ success: true })
  expect(await spendFor()).toMatchObject({ success: false, retryAfter: HOUR_MS })
  clock.advance(HOUR_MS - 1)
  expect(await spendFor()).toMatchObject({ success: false, retryAfter: 1 })
  clock.advance(1)
  expect(await spendFor()).toMatchObject({ success: true })
})

test('invalid requests are refused before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const { credits } = creditsOn(database, { db })
  const dry = creditsOn(database, { db, dryRun: true }).credits
  const one = { ratelimit: credits, key: 'key' }
  const spendFor = (requests: (typeof one)[], rate: number) => spend(requests, { rate })
  for (const rate of [-1, 0.5, undefined as never])
    await expect(spendFor([one], rate)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  const invalid = { code: 'INVALID_OPTION' }
  await expect(spendFor([], 1)).rejects.toMatchObject(invalid)
  await expect(spendFor([one, one], 1)).rejects.toMatchObject(invalid)
  await expect(spendFor([{ ratelimit: dry, key: 'key' }], 1)).rejects.toMatchObject(invalid)
  expect(statements).toEqual([])
})

test('spends, limitAll and single checks at once lose nothing and take no more than there is', async () => {
  const { requests, used } = await monthAndCredits(30)
  const reversed = requests.toReversed()
  const [month, credits] = requests as [(typeof requests)[0], (typeof requests)[0]]
  let [fromMonth, fromCredits] = [0, 0]
  const works = Array.from({ length: 40 }, async (_, place) => {
    if (place % 4 === 1) {
      if ((await limitAll(reversed)).success) [fromMonth, fromCredits] = [fromMonth + 1, fromCredits + 1]
    } else if (place % 4 === 2) {
      if ((await credits.ratelimit.limit('key')).success) fromCredits++
    } else if (place % 4 === 3) {
      if ((await month.ratelimit.limit('key')).success) fromMonth++
    } else {
      const { granted } = await spend(place % 8 ? requests : reversed, { rate: 3 })
      const [first = 0, second = 0] = place % 8 ? granted : granted.toReversed()
      fromMonth += first
      fromCredits += second
    }
  })
  await Promise.all(works)
  expect(await used()).toEqual([fromMonth, fromCredits])
  expect(fromMonth).toBeLessThanOrEqual(10)
  expect(fromCredits).toBeLessThanOrEqual(30)
})

test('any spends keep the books of both', async () => {
  const steps = fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 8 })
  const property = fc.asyncProperty(fc.nat(40), steps, async (credits, rates) => {
    const { requests, used } = await monthAndCredits(credits)
    let [month, prepaid] = [10, credits]
    for (const rate of rates) {
      const first = Math.min(rate, month)
      const enough = rate - first <= prepaid
      const granted = enough ? [first, rate - first] : [0, 0]
      expect(await spend(requests, { rate })).toMatchObject({ success: enough, granted })
      month -= granted[0] ?? 0
      prepaid -= granted[1] ?? 0
    }
    expect(await used()).toEqual([10 - month, credits - prepaid])
  })
  await fc.assert(property, runs(25))
})
