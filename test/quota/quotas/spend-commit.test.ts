import { block, blocks } from 'drizzle-ratelimit/lockout'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, Ratelimit } from '../../../src/index.ts'
import { spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { quotaOn } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'

const database = useDatabase()

/** A month of 10, and bought units. */
async function sources(bought: number, month: Limiter = calendarWindow(10, 'month')) {
  const { quota: monthly, clock } = quotaOn(database, month)
  const { credits: balance } = creditsOn(database, { clock: clock.now })
  if (bought > 0) await balance.grant('key', bought)
  const requests = [monthly, balance].map((ratelimit) => ({ ratelimit, key: 'key' }))
  const used = () =>
    Promise.all(requests.map(async ({ ratelimit }) => (await ratelimit.getRemaining('key')).used))
  const spendFor = async (rate: number) => {
    const spent = allowed(await spend(requests, { rate }))
    return spent
  }
  return { requests, monthly, balance, clock, used, spendFor }
}

test('a cost above the estimate is taken from the limits in their order', async () => {
  const { spendFor, used } = await sources(20)
  const spent = await spendFor(4)
  expect(await spent.commit(13)).toMatchObject({
    granted: [10, 3],
    results: [
      { success: true, remaining: 0 },
      { success: true, remaining: 17 },
    ],
  })
  expect(await used()).toEqual([10, 3])
})

test('a cost below the estimate gives back the last part first', async () => {
  const { spendFor, used } = await sources(20)
  const spent = await spendFor(15)
  const results = [{ remaining: 0 }, { returned: 3, remaining: 18 }]
  expect(await spent.commit(12)).toMatchObject({ granted: [10, 2], results })
  const other = await spendFor(8)
  expect(await other.commit(0)).toMatchObject({ granted: [0, 0] })
  expect(await used()).toEqual([10, 2])
  const both = await spend((await sources(20)).requests, { rate: 15 })
  if (both.success) expect(await both.commit(4)).toMatchObject({ granted: [4, 0] })
  expect.assertions(4)
})

test('what no limit has becomes a debt of the last one, or of the first', async () => {
  const last = await sources(5)
  expect(await (await last.spendFor(4)).commit(40)).toMatchObject({ granted: [10, 30] })
  expect(await last.used()).toEqual([10, 30])
  expect(await last.balance.getRemaining('key')).toMatchObject({ remaining: 0, limit: 5 })
  const first = await sources(5)
  expect(await (await first.spendFor(4)).commit(40, { debt: 'first' })).toMatchObject({ granted: [35, 5] })
  expect(await first.used()).toEqual([35, 5])
})

test('a last limit without an end takes what the others do not have, and no limit goes into debt', async () => {
  const { requests, clock } = await sources(5)
  const { quota: overage } = quotaOn(database, calendarWindow(Number.POSITIVE_INFINITY, 'month'), {
    clock: clock.now,
  })
  const { quota: unlimited } = quotaOn(database, Ratelimit.unlimited(), { clock: clock.now })
  const billed = await spend([...requests, { ratelimit: overage, key: 'key' }], { rate: 4 })
  if (billed.success) expect(await billed.commit(40)).toMatchObject({ granted: [10, 5, 25] })
  expect(await overage.getRemaining('key')).toMatchObject({ used: 25 })
  const free = await spend([...requests, { ratelimit: unlimited, key: 'key' }], { rate: 4 })
  if (free.success) expect(await free.commit(9, { debt: 'first' })).toMatchObject({ granted: [0, 0, 9] })
  const less = await spend([...requests, { ratelimit: unlimited, key: 'key' }], { rate: 4 })
  if (less.success) expect(await less.commit(1)).toMatchObject({ granted: [0, 0, 1] })
  expect.assertions(4)
})

test('with atLeast the limits give what they have together, and a denial writes nothing', async () => {
  const { requests, used } = await sources(5)
  const least = await spend(requests, { rate: 40, atLeast: 15 })
  expect(least).toMatchObject({ success: true, granted: [10, 5] })
  const denied = await spend(requests, { rate: 40, atLeast: 1 })
  expect(denied).toMatchObject({ success: false, granted: [0, 0] })
  expect(denied.retryAfter).toBeGreaterThan(0)
  expect(await used()).toEqual([10, 5])
  if (least.success) expect(await least.commit(12)).toMatchObject({ granted: [10, 2] })
  // Tokens carry an epsilon of 1e-9, and 2^53 - 1 less 0.4 is 2^53 - 1: nothing would be enough.
  const all = Number.MAX_SAFE_INTEGER
  for (const [rate, atLeast] of [
    [40, 0],
    [40, -1],
    [40, 41],
    [40, Number.NaN],
    [40, 1e-17],
    [1, 1e-9],
    [all, 0.4],
  ]) {
    await expect(spend(requests, { rate, atLeast } as never)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  }
})

test('fractions that add up to a little less than atLeast in doubles are enough', async () => {
  const { quota: first, clock } = quotaOn(database, Ratelimit.tokenBucket(1, '1d', 1))
  const { quota: second } = quotaOn(database, Ratelimit.tokenBucket(1, '1d', 1), { clock: clock.now })
  const requests = [first, second].map((ratelimit) => ({ ratelimit, key: 'key' }))
  await first.limit('key', { rate: 0.9 })
  await second.limit('key', { rate: 0.8 })
  // 1 - 0.1 - 0.2 is above 1 - 0.3.
  const spent = await spend(requests, { rate: 1, atLeast: 0.3 })
  expect(spent).toMatchObject({ success: true, retryAfter: 0 })
  expect(spent.granted[0]).toBeCloseTo(0.1, 12)
  expect(spent.granted[1]).toBeCloseTo(0.2, 12)
  const denied = await spend(requests, { rate: 1, atLeast: 0.3 })
  expect(denied.success).toBe(false)
  clock.advance(denied.retryAfter - 1)
  expect(await spend(requests, { rate: 1, atLeast: 0.3 })).toMatchObject({ success: false, retryAfter: 1 })
  clock.advance(1)
  expect(await spend(requests, { rate: 1, atLeast: 0.3 })).toMatchObject({ success: true })
})

test('it is settled once, and again after a rollback', async () => {
  const { spendFor, used } = await sources(20)
  const spent = await spendFor(4)
  await undone(database.db, async (tx) => {
    await spent.commit(13, { tx })
    await expect(spent.release({ tx })).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  })
  expect(await used()).toEqual([4, 0])
  await spent.commit(13)
  await expect(spent.commit(13)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  expect(await used()).toEqual([10, 3])
})

test('a wrong cost is refused before any SQL, and can be corrected', async () => {
  const { spendFor, used } = await sources(20)
  const spent = await spendFor(4)
  for (const actual of [-1, 1.5, Number.NaN]) {
    await expect(spent.commit(actual)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  }
  await expect(spent.commit(5, { debt: 'none' } as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await spent.commit(5)
  expect(await used()).toEqual([5, 0])
})

test('a repeated call has charged nothing, so it settles nothing', async () => {
  const { requests, used } = await sources(20)
  const once = { id: 'event', for: '1d' } as const
  await spend(requests, { rate: 4, once })
  const again = await spend(requests, { rate: 4, once })
  if (again.success) await expect(again.commit(9)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  await again.release()
  expect(await used()).toEqual([4, 0])
  expect.assertions(2)
})

test('a window that is over gives nothing back, so it has paid, and more comes from the present one', async () => {
  const { spendFor, used, clock } = await sources(20)
  const [less, more] = [await spendFor(8), await spendFor(1)]
  clock.ms = Date.UTC(2026, 1, 1)
  await spendFor(2)
  expect(await less.commit(3)).toMatchObject({ granted: [8, 0], results: [{ returned: 0 }, {}] })
  expect(await used()).toEqual([2, 0])
  expect(await more.commit(4)).toMatchObject({ granted: [4, 0] })
  expect(await used()).toEqual([5, 0])
})

test('a blocked key does not stop a commit', async () => {
  const { quota, clock } = quotaOn(database, Ratelimit.fixedWindow(10, '10h'), { use: [blocks()] })
  const { credits: balance } = creditsOn(database, { clock: clock.now })
  await balance.grant('key', 5)
  const requests = [quota, balance].map((ratelimit) => ({ ratelimit, key: 'key' }))
  const spent = await spend(requests, { rate: 2 })
  await block(quota, 'key', '1h')
  if (spent.success) expect(await spent.commit(4)).toMatchObject({ granted: [4, 0] })
  expect.assertions(1)
})

test('a row of another plan is refused, unless the present plan is given', async () => {
  const { spendFor, monthly } = await sources(20)
  const spent = await spendFor(4)
  const bucket = Ratelimit.tokenBucket(1, '1h', 50)
  await monthly.resetUsedTokens('key')
  await monthly.limit('key', { rate: 2, limiter: bucket })
  for (const cost of [1, 9]) {
    await expect(spent.commit(cost)).rejects.toMatchObject({ code: 'OTHER_PLAN' })
  }
  expect(await monthly.getRemaining('key', { limiter: bucket })).toMatchObject({ used: 2 })
  await spent.commit(9, { limiters: [bucket, undefined] })
  expect(await monthly.getRemaining('key', { limiter: bucket })).toMatchObject({ used: 7 })
})

test('a plan of whole units charges the rest of a fraction as a whole', async () => {
  const bucket = Ratelimit.tokenBucket(1, '1h', 10, { refill: 'continuous' })
  const { quota } = quotaOn(database, bucket)
  const spent = await spend([{ ratelimit: quota, key: 'key' }], { rate: 2.5 })
  const window = Ratelimit.fixedWindow(10, '10h')
  if (spent.success) {
    expect(await spent.commit(5, { limiters: [window] })).toMatchObject({ granted: [5.5] })
  }
  expect(await quota.getRemaining('key', { limiter: window })).toMatchObject({ used: 3 })
  expect.assertions(2)
})

// Numbers of plain JavaScript have the same answers.
test('random estimates and costs, as a model has them', async () => {
  const amount = fc.integer({ min: 1, max: 30 })
  const step = fc.record({
    rate: amount,
    least: fc.option(fc.integer({ min: 1, max: 30 })),
    actual: fc.integer({ min: 0, max: 40 }),
    debt: fc.constantFrom('first', 'last', undefined),
  })
  const steps = fc.array(step, { minLength: 1, maxLength: 12 })
  const capacities = fc.array(fc.integer({ min: 0, max: 40 }), { minLength: 1, maxLength: 3 })
  await fc.assert(
    fc.asyncProperty(capacities, steps, async (limits, calls) => {
      const quotas = limits.map((limit) => quotaOn(database, Ratelimit.fixedWindow(limit, '10h')))
      const requests = quotas.map(({ quota }) => ({ ratelimit: quota, key: 'key' }))
      const left = [...limits]
      for (const { rate, least, actual, debt } of calls) {
        const atLeast = least === null ? rate : Math.min(least, rate)
        const spent = await spend(requests, { rate, atLeast })
        const [shares, rest] = shared(left, rate)
        expect(spent.success).toBe(rest <= rate - atLeast)
        if (!spent.success) continue
        expect(spent.granted).toEqual(shares)
        shares.forEach((share, place) => {
          left[place] = (left[place] ?? 0) - share
        })
        const changes = changesFor(left, shares, actual, debt === 'first' ? 0 : limits.length - 1)
        const { granted } = await spent.commit(actual, debt && { debt })
        expect(granted).toEqual(shares.map((share, place) => share + (changes[place] ?? 0)))
        changes.forEach((change, place) => {
          left[place] = (left[place] ?? 0) - change
        })
        const used = requests.map(async ({ ratelimit, key }) => (await ratelimit.getRemaining(key)).used)
        expect(await Promise.all(used)).toEqual(left.map((each, place) => (limits[place] ?? 0) - each))
      }
    }),
    runs(20),
  )
})

/** What each pays of the rate, and what they do not have. */
function shared(left: readonly number[], rate: number): [number[], number] {
  let rest = rate
  const shares = left.map((each) => {
    const share = Math.min(Math.max(each, 0), rest)
    rest -= share
    return share
  })
  return [shares, rest]
}

function changesFor(left: readonly number[], shares: readonly number[], actual: number, debtor: number) {
  const missing = actual - shares.reduce((sum, share) => sum + share, 0)
  if (missing > 0) {
    const [more, debt] = shared(left, missing)
    return more.map((each, place) => (place === debtor ? each + debt : each))
  }
  const [back] = shared(shares.toReversed(), -missing)
  return back.toReversed().map((each) => (each === 0 ? 0 : -each))
}
