import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { Ratelimit, rateLimitDurable } from '../../../src/index.ts'
import {
  openReservations,
  Quota,
  type QuotaConfig,
  reserveAll,
  settle,
  settleExpired,
  spend,
} from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { HOUR_MS, quotaOn } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

// Estimates with a name, on credits that end. Any process settles an estimate, and only once. The grants that
// have paid get back what was too much.

const database = useDatabase()
const NAMED = { id: 'job', expires: '10m' } as const
const DAY_MS = 24 * HOUR_MS

let prefixes = 0

/** A month and credits of one customer, and the same in a process that shares nothing but the tables. */
function sourcesOf(options: Partial<QuotaConfig> = {}, more: { readonly hashKeys?: true } = {}) {
  const { config, clock } = quotaOn(database, calendarWindow(10, 'month'), { ...options, ...more })
  const prefix = `named credits ${++prefixes}`
  const process = () => {
    const common = { db: database.db, cleanupProbability: 0, durable: true, clock: clock.now, ...more }
    const credits = new Credits({ ...common, dated: true, prefix })
    const month = new Quota(config)
    const both = [
      { ratelimit: month, key: 'org' },
      { ratelimit: credits, key: 'org' },
    ] as const
    return { month, credits, both }
  }
  const [mine, theirs] = [process(), process()]
  /** What the month has used, what each grant has left, and what is owed. */
  const books = async () => {
    const grants = await mine.credits.grants('org')
    const live = grants.filter(({ ended }) => !ended)
    const owed = (await mine.credits.getRemaining('org')).used - live.reduce((sum, { used }) => sum + used, 0)
    return [(await mine.month.getRemaining('org')).used, ...live.map(({ left }) => left), owed]
  }
  /** How many rows there are of names. */
  const open = () => openReservations(mine.credits)
  return { mine, theirs, clock, books, open, prefix }
}

/** Two grants of 5 and 100. */
async function granted(...options: Parameters<typeof sourcesOf>) {
  const sources = sourcesOf(...options)
  const { credits } = sources.mine
  await credits.grant('org', 5, { id: 'gift', expires: '40d', priority: 10 })
  await credits.grant('org', 100, { id: 'paid' })
  return sources
}

describe('reserve', () => {
  test.each([
    [0, [0, 5, 100, 0], 8],
    [3, [0, 2, 100, 0], 5],
    [6, [0, 0, 99, 0], 2],
    [8, [0, 0, 97, 0], undefined],
    [20, [0, 0, 85, 0], undefined],
    [120, [0, 0, 0, 15], undefined],
  ])('another process settles %d of 8, once', async (actual, books, returned) => {
    const { mine, theirs, books: now, open } = await granted()
    const reserved = await mine.credits.reserve('org', { rate: 8, ...NAMED })
    expect(reserved).toMatchObject({ success: true, limit: 105, remaining: 97 })
    expect(reserved).not.toHaveProperty('repeated')
    expect(await open()).toMatchObject([{ key: 'org', id: 'job', rate: 8 }])
    const settled = await theirs.credits.settle({ key: 'org', id: 'job' }, actual)
    expect(settled).toMatchObject({ success: true, limit: 105, remaining: Math.max(105 - actual, 0) })
    expect(settled.returned).toBe(returned)
    expect(settled).not.toHaveProperty('repeated')
    expect(await now()).toEqual(books)
    expect(await open()).toEqual([])
    for (const { credits } of [mine, theirs]) {
      const again = await credits.settle({ key: 'org', id: 'job' }, actual)
      expect(again).toMatchObject({ success: true, repeated: true, remaining: settled.remaining })
    }
    const other = theirs.credits.settle({ key: 'org', id: 'job' }, actual + 1)
    await expect(other).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await now()).toEqual(books)
  })

  test('the same name again charges nothing, whichever grants would pay by now', async () => {
    const { mine, theirs, books } = await granted()
    await mine.credits.reserve('org', { rate: 5, ...NAMED })
    const again = await theirs.credits.reserve('org', { rate: 50, atLeast: 1, ...NAMED })
    expect(again).toMatchObject({ success: true, repeated: true, granted: 0, remaining: 100 })
    expect(await books()).toEqual([0, 0, 100, 0])
    await mine.credits.limit('org', { rate: 100 })
    expect(await mine.credits.reserve('org', NAMED)).toMatchObject({ success: true, repeated: true })
    await mine.credits.limit('org', { rate: -100 })
    if (!again.success) expect.fail('denied')
    expect(await again.commit(2)).toMatchObject({ returned: 3 })
    expect(await again.release().catch(({ code }) => code)).toBe('ALREADY_SETTLED')
    expect(await books()).toEqual([0, 3, 100, 0])
    const late = await mine.credits.reserve('org', { rate: 1, ...NAMED })
    expect(late).toMatchObject({ repeated: true })
  })

  test('a denial leaves the name free, and so does a rollback', async () => {
    const { mine, theirs, books, open } = await granted()
    expect(await mine.credits.reserve('org', { rate: 106, ...NAMED })).toMatchObject({ success: false })
    await undone(database.db, async (tx) => {
      await mine.credits.reserve('org', { rate: 8, tx, ...NAMED })
    })
    expect(await books()).toEqual([0, 5, 100, 0])
    expect(await open()).toEqual([])
    const settled = theirs.credits.settle({ key: 'org', id: 'job' }, 1)
    await expect(settled).rejects.toMatchObject({ code: 'NOT_RESERVED' })
    const part = await mine.credits.reserve('org', { rate: 106, atLeast: 1, ...NAMED })
    expect(part).toMatchObject({ success: true, granted: 105 })
    await database.db.transaction((tx) => theirs.credits.settle({ key: 'org', id: 'job' }, 4, { tx }))
    expect(await books()).toEqual([0, 1, 100, 0])
  })

  test('a grant that has ended gets nothing back, and neither does a later one with its id', async () => {
    const { mine, theirs, books, clock } = await granted()
    await mine.credits.reserve('org', { rate: 8, ...NAMED })
    clock.advance(200 * DAY_MS)
    await mine.credits.cleanup()
    await mine.credits.grant('org', 5, { id: 'gift', priority: 10 })
    await mine.credits.limit('org', { rate: 4 })
    expect(await theirs.credits.settle({ key: 'org', id: 'job' }, 0)).toMatchObject({ returned: 3 })
    expect(await books()).toEqual([0, 1, 100, 0])
  })

  test('what is owed is paid by the estimate, and stays paid', async () => {
    const { mine, theirs, books } = await granted()
    await mine.credits.limit('org', { rate: 110, force: true })
    await mine.credits.grant('org', 20, { id: 'more', priority: 60 })
    await mine.credits.reserve('org', { rate: 8, ...NAMED })
    expect(await books()).toEqual([0, 0, 0, 7, 0])
    expect(await theirs.credits.settle({ key: 'org', id: 'job' }, 6)).toMatchObject({ returned: 2 })
    expect(await books()).toEqual([0, 0, 0, 9, 0])
  })

  test('an estimate of 0 is charged its cost once', async () => {
    const { mine, theirs, books } = sourcesOf()
    expect(await mine.credits.reserve('org', { rate: 0, ...NAMED })).toMatchObject({ success: true })
    await mine.credits.grant('org', 5, { id: 'gift' })
    await theirs.credits.settle({ key: 'org', id: 'job' }, 2)
    await theirs.credits.settle({ key: 'org', id: 'job' }, 2)
    expect(await books()).toEqual([0, 3, 0])
  })

  test('with hashKeys, key and id are hashed', async () => {
    const { mine, theirs, books, open } = await granted({}, { hashKeys: true })
    await mine.credits.reserve('org', { rate: 8, ...NAMED })
    expect(await open()).toMatchObject([{ key: expect.stringMatching(/^[\da-f]{64}$/), rate: 8 }])
    await theirs.credits.settle({ key: 'org', id: 'job' }, 1)
    expect(await books()).toEqual([0, 4, 100, 0])
  })

  test('a sweep leaves open estimates and their shares, and later nothing', async () => {
    const { mine, theirs, clock, prefix, books } = await granted()
    const rows = async () => {
      const all = await database.db.select({ prefix: rateLimitDurable.prefix }).from(rateLimitDurable)
      return all.filter((row) => row.prefix.endsWith(`/${prefix}`)).length
    }
    await mine.credits.reserve('org', { rate: 8, ...NAMED })
    clock.advance(30 * DAY_MS)
    expect(await mine.credits.cleanup()).toBe(0)
    expect(await rows()).toBe(3)
    await theirs.credits.settle({ key: 'org', id: 'job' }, 6)
    expect(await mine.credits.cleanup()).toBe(0)
    clock.advance(DAY_MS + 10_000)
    expect(await mine.credits.cleanup()).toBe(3)
    expect(await rows()).toBe(0)
    expect(await books()).toEqual([0, 0, 99, 0])
  })

  test('more grants than fit into one statement pay, and get back', async () => {
    const { mine, theirs, books, open } = sourcesOf()
    const ids = Array.from({ length: 60 }, (_, i) => i)
    for (const i of ids) await mine.credits.grant('org', 1, { id: `small ${i}`, priority: i })
    const wanted = { rate: 55, ...NAMED }
    expect(await mine.credits.reserve('org', wanted)).toMatchObject({ success: true, remaining: 5 })
    expect(await mine.credits.reserve('org', wanted)).toMatchObject({ success: true, repeated: true })
    expect(await open()).toMatchObject([{ rate: 55 }])
    const settled = await theirs.credits.settle({ key: 'org', id: 'job' }, 40)
    expect(settled).toMatchObject({ returned: 15, remaining: 20 })
    expect(await books()).toEqual([0, ...ids.map((i) => Number(i >= 40)), 0])
    await mine.credits.reserve('org', { rate: 1, id: 'above', expires: '1h' })
    await theirs.credits.settle({ key: 'org', id: 'above' }, 20)
    expect(await books()).toEqual([0, ...ids.map(() => 0), 0])
  })
})

test('a plan is refused, and so is a name that is not whole', async () => {
  const { mine } = await granted()
  const reserved = await mine.credits.reserve('org', NAMED)
  if (!reserved.success) expect.fail('denied')
  const refused = { code: 'INVALID_OPTION' }
  const plan: object = { limiter: Ratelimit.fixedWindow(5, '1h') }
  await expect(mine.credits.settle({ key: 'org', id: 'job' }, 1, plan)).rejects.toMatchObject(refused)
  await expect(reserved.commit(1, plan)).rejects.toMatchObject(refused)
  await expect(reserved.commit(1.5)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  await expect(mine.credits.settle({ key: 'org', id: '' }, 1)).rejects.toMatchObject(refused)
  const endless: object = { expires: '1h' }
  await expect(mine.credits.reserve('org', endless)).rejects.toMatchObject(refused)
  expect(await reserved.release()).toMatchObject({ returned: 1 })
})

describe('reserveAll', () => {
  test.each([
    [
      [0, 0],
      [0, 5, 100, 0],
    ],
    [
      [2, 9],
      [2, 0, 96, 0],
    ],
    [
      [12, 200],
      [12, 0, 0, 95],
    ],
  ])('another process settles the costs %j, once', async (costs, books) => {
    const { mine, theirs, books: now } = await granted()
    const [month, credits] = mine.both
    const requests = [
      { ...month, rate: 4 },
      { ...credits, rate: 8 },
    ]
    expect(await reserveAll(requests, NAMED)).toMatchObject({ success: true })
    const again = await reserveAll(requests, NAMED)
    expect(again).toMatchObject({ success: true, repeated: true })
    expect(await now()).toEqual([4, 0, 97, 0])
    await settle(theirs.both, 'job', { actual: costs })
    expect(await now()).toEqual(books)
    const repeated = (await settle(mine.both, 'job', { actual: costs })).results
    expect(repeated.map((each) => each.repeated)).toEqual([true, true])
    expect(await now()).toEqual(books)
  })

  test('a name that only one of the limits has is refused, and one of them can be settled alone', async () => {
    const { mine, theirs, books } = await granted()
    await mine.credits.reserve('org', { rate: 8, ...NAMED })
    const mixed = reserveAll(mine.both, NAMED)
    await expect(mixed).rejects.toMatchObject({ code: 'OTHER_RESERVATION' })
    expect(await books()).toEqual([0, 0, 97, 0])
    await theirs.credits.settle({ key: 'org', id: 'job' }, 8)
    await reserveAll(mine.both, { ...NAMED, id: 'both' })
    await theirs.credits.settle({ key: 'org', id: 'both' }, 3)
    const late = settle(mine.both, 'both', { actual: [1, 1] })
    await expect(late).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await books()).toEqual([1, 0, 94, 0])
  })

  test('with grace, the month and the grants get back what they have paid', async () => {
    const { mine, theirs, books, clock } = await granted({ keepEnded: true, grace: '1h' })
    await reserveAll(mine.both, NAMED)
    expect((await settle(theirs.both, 'job', { actual: [0, 3] })).results).toMatchObject([
      { returned: 1 },
      { remaining: 102 },
    ])
    expect(await books()).toEqual([0, 2, 100, 0])
    await reserveAll(mine.both, { ...NAMED, id: 'late' })
    clock.ms = Date.UTC(2026, 1, 1)
    const late = (await settle(theirs.both, 'late', { actual: [0, 0] })).results
    expect(late).toMatchObject([{ returned: 1 }, { returned: 1 }])
  })
})

describe('spend', () => {
  test.each([
    [0, [0, 0], [0, 5, 100, 0]],
    [3, [3, 0], [3, 5, 100, 0]],
    [12, [10, 2], [10, 3, 100, 0]],
    [18, [10, 8], [10, 0, 97, 0]],
    [30, [10, 20], [10, 0, 85, 0]],
    [130, [10, 120], [10, 0, 0, 15]],
  ])('another process settles %d of 18, once', async (actual, shares, books) => {
    const { mine, theirs, books: now, open } = await granted()
    const spent = await spend(mine.both, { rate: 18, ...NAMED })
    expect(spent).toMatchObject({ success: true, granted: [10, 8] })
    expect(await open()).toMatchObject([{ rate: 8 }])
    const settled = await settle(theirs.both, 'job', { actual })
    expect(settled.granted).toEqual(shares)
    expect(await now()).toEqual(books)
    expect(await settle(mine.both, 'job', { actual })).toMatchObject({ repeated: true })
    const other = settle(mine.both, 'job', { actual: actual + 1 })
    await expect(other).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await now()).toEqual(books)
  })

  test('credits that pay nothing have the name too, and the commit knows what each has paid', async () => {
    const { mine, theirs, books } = await granted()
    const spent = await spend(mine.both, { rate: 4, ...NAMED })
    expect(spent).toMatchObject({ success: true, granted: [4, 0] })
    const again = await spend(theirs.both, { rate: 40, ...NAMED })
    expect(again).toMatchObject({ success: true, repeated: true, granted: [0, 0] })
    if (!again.success) expect.fail('denied')
    expect(await again.commit(17)).toMatchObject({ granted: [10, 7] })
    expect(await books()).toEqual([10, 0, 98, 0])
  })

  test('next to a limit without a row, each notes its own share', async () => {
    const { mine, theirs, books, open } = await granted()
    const requests = ({ both: [month, credits] }: typeof mine) => [
      credits,
      { ...month, limiter: Ratelimit.unlimited() },
    ]
    const spent = await spend(requests(mine), { rate: 200, ...NAMED })
    expect(spent).toMatchObject({ granted: [105, 95] })
    expect(await open()).toMatchObject([{ rate: 105 }])
    expect(await settle(requests(theirs), 'job', { actual: 101 })).toMatchObject({ granted: [101, 0] })
    expect(await books()).toEqual([0, 0, 4, 0])
  })

  test('more grants than fit into one statement pay next to a month, and all get back', async () => {
    const { mine, theirs, books, open, clock } = sourcesOf()
    clock.advance(40 * DAY_MS)
    const ids = Array.from({ length: 30 }, (_, i) => i)
    for (const i of ids) await mine.credits.grant('org', 1, { id: `small ${i}`, priority: i })
    await mine.month.limit('org', { rate: 3 })
    const spent = await spend(mine.both, { rate: 35, ...NAMED })
    expect(spent).toMatchObject({ success: true, granted: [7, 28] })
    expect(await open()).toMatchObject([{ rate: 28 }])
    expect(await books()).toEqual([10, ...ids.map((i) => Number(i >= 28)), 0])
    expect(await settle(theirs.both, 'job', { actual: 5 })).toMatchObject({ granted: [5, 0] })
    expect(await books()).toEqual([8, ...ids.map(() => 1), 0])
  })
})

describe('settleExpired', () => {
  test.each([
    ['release', [0, 5, 100, 0], 8],
    ['charge', [0, 0, 97, 0], 0],
  ] as const)('ends estimates by %s', async (as, books, returned) => {
    const { mine, theirs, clock, books: now, open } = await granted()
    await mine.credits.reserve('org', { rate: 8, ...NAMED })
    await mine.credits.reserve('other', { rate: 0, id: 'none', expires: '1m' })
    clock.advance(600_000)
    const end = () => database.db.transaction((tx) => settleExpired(theirs.credits, { tx, as }))
    expect(await end()).toMatchObject([
      { key: 'org', id: 'job', rate: 8, returned },
      { key: 'other', id: 'none', rate: 0, returned: 0 },
    ])
    expect(await end()).toEqual([])
    expect(await open()).toEqual([])
    expect(await now()).toEqual(books)
    const late = mine.credits.settle({ key: 'org', id: 'job' }, 3)
    await expect(late).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  })

  test('refuses limiterOf before any SQL, also while no estimate has expired', async () => {
    const { ratelimit } = sourcesOf().mine.both[1]
    const limiterOf = () => Ratelimit.fixedWindow(10, '1h')
    const ended = database.db.transaction(async (tx) => {
      const { db, statements } = watch(tx)
      const end = settleExpired(ratelimit as never, { tx: db, as: 'release', limiterOf })
      await expect(end).rejects.toMatchObject({ code: 'INVALID_OPTION' })
      return statements
    })
    expect(await ended).toEqual([])
  })
})
