import fc from 'fast-check'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../src/calendar.ts'
import { type Limiter, Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { watch } from '../support/watch.ts'
import { quotaOn, UNDO } from './ten.ts'

const database = useDatabase()

async function monthAndCredits(credits: number, month: Limiter = calendarWindow(10, 'month')) {
  const { quota: monthly, clock } = quotaOn(database, month)
  const balance = quotaOn(database, Ratelimit.balance(), { clock: clock.now }).quota
  if (credits > 0) await balance.grant('key', credits)
  const requests = [monthly, balance].map((ratelimit) => ({ ratelimit, key: 'key' }))
  const used = () =>
    Promise.all(requests.map(async ({ ratelimit }) => (await ratelimit.getRemaining('key')).used))
  return { requests, used, clock, monthly, balance }
}

test('the month is spent first, then the credits', async () => {
  const { requests, used } = await monthAndCredits(100)
  expect(await Ratelimit.spend(requests, { rate: 7 })).toMatchObject({ success: true, granted: [7, 0] })
  expect(await Ratelimit.spend(requests, { rate: 7 })).toMatchObject({
    ...{ success: true, granted: [3, 4], retryAfter: 0 },
    results: [
      { success: true, remaining: 0 },
      { success: true, remaining: 96 },
    ],
  })
  expect(await Ratelimit.spend(requests, { rate: 7 })).toMatchObject({ granted: [0, 7] })
  expect(await used()).toEqual([10, 11])
})

test('with too little together nothing is taken, until the month has enough', async () => {
  const { requests, used, clock } = await monthAndCredits(4)
  await Ratelimit.spend(requests, { rate: 9 })
  const denied = await Ratelimit.spend(requests, { rate: 6 })
  expect(denied).toMatchObject({
    success: false,
    granted: [0, 0],
    results: [{ remaining: 1 }, { remaining: 4 }],
  })
  expect(denied.retryAfter).toBe(Date.UTC(2026, 1, 1) - clock.ms)
  expect(await used()).toEqual([9, 0])
  clock.advance(denied.retryAfter - 1)
  expect(await Ratelimit.spend(requests, { rate: 6 })).toMatchObject({ success: false, retryAfter: 1 })
  clock.advance(1)
  expect(await Ratelimit.spend(requests, { rate: 6 })).toMatchObject({ success: true, granted: [6, 0] })
  expect(await Ratelimit.spend(requests, { rate: 15 })).toMatchObject({
    success: false,
    retryAfter: Infinity,
  })
})

test('release gives each back what it gave, once, and to the window that paid', async () => {
  const { requests, used, clock } = await monthAndCredits(100)
  const spent = await Ratelimit.spend(requests, { rate: 15 })
  await spent.release()
  await spent.release()
  expect(await used()).toEqual([0, 0])
  const late = await Ratelimit.spend(requests, { rate: 15 })
  clock.ms = Date.UTC(2026, 1, 1)
  await Ratelimit.spend(requests, { rate: 2 })
  await late.release()
  expect(await used()).toEqual([2, 0])
})

test('in a transaction it is undone with it, and so is a release', async () => {
  const { requests, used } = await monthAndCredits(100)
  const undone = database.db.transaction(async (tx) => {
    const spent = await Ratelimit.spend(requests, { rate: 15, tx })
    await spent.release({ tx })
    expect(await Ratelimit.spend(requests, { rate: 12, tx })).toMatchObject({ granted: [10, 2] })
    throw UNDO
  })
  await expect(undone).rejects.toBe(UNDO)
  expect(await used()).toEqual([0, 0])
})

test('a bucket gives whole units beside a window, and an unlimited plan all the rest', async () => {
  const bucket = quotaOn(database, Ratelimit.tokenBucket(1, '1h', 10)).quota
  await bucket.limit('key', { rate: 6.5 })
  const { requests } = await monthAndCredits(1)
  const unlimited = quotaOn(database, Ratelimit.unlimited()).quota
  const all = [{ ratelimit: bucket, key: 'key' }, ...requests, { ratelimit: unlimited, key: 'key' }]
  expect(await Ratelimit.spend(all, { rate: 50 })).toMatchObject({ success: true, granted: [3, 10, 1, 36] })
})

test('refused before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, Ratelimit.balance(), { db })
  const dry = quotaOn(database, Ratelimit.balance(), { db, dryRun: true }).quota
  const one = { ratelimit: quota, key: 'key' }
  const spend = (requests: (typeof one)[], rate: number) => Ratelimit.spend(requests, { rate })
  for (const rate of [0, -1, 0.5])
    await expect(spend([one], rate)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  const invalid = { code: 'INVALID_OPTION' }
  await expect(spend([], 1)).rejects.toMatchObject(invalid)
  await expect(spend([one, one], 1)).rejects.toMatchObject(invalid)
  await expect(spend([{ ratelimit: dry, key: 'key' }], 1)).rejects.toMatchObject(invalid)
  expect(statements).toEqual([])
})

test('spends, limitAll and single checks at once lose nothing and take no more than there is', async () => {
  const { requests, used } = await monthAndCredits(30)
  const reversed = requests.toReversed()
  const [month, credits] = requests as [(typeof requests)[0], (typeof requests)[0]]
  let [fromMonth, fromCredits] = [0, 0]
  const works = Array.from({ length: 40 }, async (_, place) => {
    if (place % 4 === 1) {
      if ((await Ratelimit.limitAll(reversed)).success)
        [fromMonth, fromCredits] = [fromMonth + 1, fromCredits + 1]
    } else if (place % 4 === 2) {
      if ((await credits.ratelimit.limit('key')).success) fromCredits++
    } else if (place % 4 === 3) {
      if ((await month.ratelimit.limit('key')).success) fromMonth++
    } else {
      const { granted } = await Ratelimit.spend(place % 8 ? requests : reversed, { rate: 3 })
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
      expect(await Ratelimit.spend(requests, { rate })).toMatchObject({ success: enough, granted })
      month -= granted[0] ?? 0
      prepaid -= granted[1] ?? 0
    }
    expect(await used()).toEqual([10 - month, credits - prepaid])
  })
  await fc.assert(property, { numRuns: 25 })
})
