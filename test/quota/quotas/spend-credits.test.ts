import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { type Limiter, Ratelimit } from '../../../src/index.ts'
import { Quota, spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { HOUR_MS, quotaOn } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

// `spend` with credits that end: the month first, then the grants.

const database = useDatabase()

let prefixes = 0

function monthAndCredits(month: Limiter = calendarWindow(10, 'month'), first = false) {
  const { quota: monthly, clock } = quotaOn(database, month)
  const credits = new Credits({
    ...{ db: database.db, dated: true, prefix: `beside ${++prefixes}`, durable: true },
    ...{ clock: clock.now, cleanupProbability: 0 },
  })
  const sources = [
    { ratelimit: monthly, key: 'key' },
    { ratelimit: credits, key: 'key' },
  ]
  const requests = first ? sources.toReversed() : sources
  /** What the month has used, and what the grants have left. */
  const books = async () => {
    const left = (await credits.grants('key')).map(({ id, left }) => [id, left] as const)
    const { used } = await monthly.getRemaining('key')
    return { month: used, ...Object.fromEntries(left) }
  }
  const spendFor = (rate: number, options = {}) => spend(requests, { rate, ...options })
  return { clock, monthly, credits, requests, books, spendFor }
}

async function grantOnes(credits: Credits<true>, key: string, count: number): Promise<void> {
  const grants = Array.from({ length: count }, (_, place) => credits.grant(key, 1, { id: `one ${place}` }))
  await Promise.all(grants)
}

test('the month is spent first, then the grants in their order', async () => {
  const { credits, books, spendFor } = monthAndCredits()
  await credits.grant('key', 5, { id: 'b', expires: '20d' })
  await credits.grant('key', 5, { id: 'a', expires: '10d' })
  expect(await spendFor(8)).toMatchObject({ success: true, granted: [8, 0], retryAfter: 0 })
  expect(await spendFor(9)).toMatchObject({
    ...{ success: true, granted: [2, 7] },
    results: [
      { success: true, remaining: 0 },
      { success: true, limit: 10, remaining: 3, reset: Infinity },
    ],
  })
  expect(await books()).toEqual({ month: 10, a: 0, b: 3 })
  expect(await spendFor(4)).toMatchObject({ success: false, granted: [0, 0] })
  expect(await spendFor(9, { atLeast: 2 })).toMatchObject({ success: true, granted: [0, 3] })
  expect(await books()).toEqual({ month: 10, a: 0, b: 0 })
})

test('the credits can be the first ones', async () => {
  const { credits, books, spendFor } = monthAndCredits(undefined, true)
  await credits.grant('key', 5, { id: 'a' })
  expect(await spendFor(8)).toMatchObject({ success: true, granted: [5, 3] })
  expect(await books()).toEqual({ month: 3, a: 0 })
})

describe('a denial', () => {
  test('says exactly when there is enough: before a grant ends, or never', async () => {
    const refills = Ratelimit.tokenBucket(1, '1h', 10, { refill: 'continuous' })
    const { credits, clock, monthly, spendFor } = monthAndCredits(refills)
    await credits.grant('key', 20, { id: 'a', expires: '5h' })
    await monthly.limit('key', { rate: 10 })
    const denied = await spendFor(23)
    expect(denied).toMatchObject({ success: false, retryAfter: 3 * HOUR_MS })
    clock.advance(3 * HOUR_MS - 1)
    expect(await spendFor(23)).toMatchObject({ success: false, retryAfter: 1 })
    // The grant ends before the bucket has five.
    expect(await spendFor(25)).toMatchObject({ success: false, retryAfter: Infinity })
    clock.advance(1)
    expect(await spendFor(23)).toMatchObject({ success: true, granted: [3, 20] })
  })

  test('waits for the month where the grant has ended by then', async () => {
    const { credits, clock, spendFor } = monthAndCredits()
    await credits.grant('key', 5, { id: 'a', expires: '1h' })
    await spendFor(9)
    const { retryAfter } = await spendFor(7)
    expect(retryAfter).toBe(Date.UTC(2026, 1, 1) - clock.ms)
    expect(await spendFor(11)).toMatchObject({ success: false, retryAfter: Infinity })
    clock.advance(retryAfter - 1)
    expect(await spendFor(7)).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await spendFor(7)).toMatchObject({ success: true, granted: [7, 0] })
  })

  test('counts a grant to the millisecond before its end', async () => {
    const { credits, clock, spendFor } = monthAndCredits(Ratelimit.fixedWindow(10, '2h'))
    await credits.grant('key', 5, { id: 'a', expires: '2h' })
    await spendFor(10)
    await credits.grant('key', 5, { id: 'b', expires: new Date(clock.ms + 2 * HOUR_MS + 1) })
    expect(await spendFor(15)).toMatchObject({ success: false, retryAfter: 2 * HOUR_MS })
    expect(await spendFor(16)).toMatchObject({ success: false, retryAfter: Infinity })
    clock.advance(2 * HOUR_MS)
    expect(await spendFor(15)).toMatchObject({ success: true, granted: [10, 5] })
  })

  test('writes nothing, with and without grants and a month', async () => {
    const { credits, monthly, requests, spendFor } = monthAndCredits()
    const written = () =>
      database.rows(
        `select xmin::text, stored.* from rate_limit_durable stored where prefix like $1
          union all select xmin::text, stored.* from rate_limit_ephemeral stored where prefix = $2
          order by prefix, key`,
        [`%${credits.prefix}`, monthly.prefix],
      )
    const once = { id: 'event', for: '1d' } as const
    expect(await spendFor(11, { once })).toMatchObject({ success: false })
    const own = requests.slice(1)
    expect(await spend(own, { rate: 1 })).toEqual({
      ...{ success: false, granted: [0], retryAfter: Infinity, release: expect.any(Function) },
      results: [{ success: true, limit: 0, remaining: 0, reset: expect.any(Number), retryAfter: 0 }],
    })
    expect(await written()).toEqual([])
    await credits.grant('key', 3, { id: 'a' })
    await spendFor(8)
    const before = await written()
    expect(await spendFor(6, { once })).toMatchObject({ success: false, granted: [0, 0] })
    expect(await written()).toEqual(before)
  })
})

describe('a debt of the credits', () => {
  test('is paid by a call that takes from them, and left alone by one that does not', async () => {
    const { credits, books, spendFor } = monthAndCredits()
    await credits.limit('key', { rate: 4, force: true })
    await credits.grant('key', 10, { id: 'a' })
    expect(await spendFor(3)).toMatchObject({ success: true, granted: [3, 0] })
    expect(await books()).toEqual({ month: 3, a: 10 })
    expect(await spendFor(14)).toMatchObject({ success: false })
    expect(await spendFor(9)).toMatchObject({
      success: true,
      granted: [7, 2],
      results: [{}, { remaining: 4 }],
    })
    expect(await books()).toEqual({ month: 10, a: 4 })
    expect(await credits.getRemaining('key')).toMatchObject({ used: 6, remaining: 4 })
  })

  test('that takes all they have leaves what others have', async () => {
    const { credits, books, spendFor, clock } = monthAndCredits()
    await credits.limit('key', { rate: 9, force: true })
    await credits.grant('key', 6, { id: 'a' })
    expect(await spendFor(12, { atLeast: 5 })).toMatchObject({ success: true, granted: [10, 0] })
    expect(await books()).toEqual({ month: 10, a: 6 })
    const denied = await spendFor(1)
    expect(denied).toMatchObject({ success: false, retryAfter: Date.UTC(2026, 1, 1) - clock.ms })
    await credits.grant('key', 4, { id: 'b' })
    expect(await spendFor(3, { atLeast: 1 })).toMatchObject({ success: true, granted: [0, 1] })
    expect(await books()).toEqual({ month: 10, a: 0, b: 0 })
    expect(await credits.getRemaining('key')).toMatchObject({ used: 10, remaining: 0 })
  })

  // A statement has 50 rows at most.
  test.each([3, 60])('is paid by the credits of its own key, with %i grants', async (grants) => {
    const { credits, monthly, clock } = monthAndCredits()
    await credits.limit('owing', { rate: grants + 2, force: true })
    await credits.limit('other', { rate: 1, force: true })
    await grantOnes(credits, 'owing', grants)
    await credits.grant('other', 10, { id: 'a' })
    const sources = ['owing', 'other'].map((key) => ({ ratelimit: credits, key }))
    expect(await spend(sources, { rate: 2 })).toMatchObject({ success: true, granted: [0, 2] })
    expect(await credits.getRemaining('owing')).toMatchObject({ used: grants + 2, remaining: 0 })
    expect(await credits.getRemaining('other')).toMatchObject({ used: 3, remaining: 7 })
    await monthly.limit('key', { rate: 10 })
    const withMonth = [...sources, { ratelimit: monthly, key: 'key' }]
    const denied = await spend(withMonth, { rate: 17 })
    expect(denied).toMatchObject({ success: false, retryAfter: Date.UTC(2026, 1, 1) - clock.ms })
    expect(await spend(withMonth, { rate: 18 })).toMatchObject({ success: false, retryAfter: Infinity })
  })
})

// A statement has 50 rows at most.
describe.each([3, 60])('with an unlimited source and %i grants', (grants) => {
  function unlimitedAndCredits() {
    const { clock, monthly, credits, requests } = monthAndCredits()
    const { quota: first } = quotaOn(database, Ratelimit.fixedWindow(5, '1h'), { clock: clock.now })
    return { clock, monthly, credits, sources: [{ ratelimit: first, key: 'key' }, ...requests] }
  }

  test('credits before it pay what they have beyond their debt', async () => {
    const { credits, sources } = unlimitedAndCredits()
    await credits.limit('key', { rate: 2, force: true })
    await grantOnes(credits, 'key', grants)
    const [first] = sources.map((source) => ({ ...source, limiter: Ratelimit.unlimited() }))
    const both = [...sources.slice(2), ...(first ? [first] : [])]
    expect(await spend(both, { rate: grants })).toMatchObject({ granted: [grants - 2, 2] })
    expect(await credits.getRemaining('key')).toMatchObject({ used: grants, remaining: 0 })
  })

  test('what the month has reserved after it is settled', async () => {
    const { clock, monthly, credits, sources } = unlimitedAndCredits()
    await grantOnes(credits, 'key', grants)
    const spent = allowed(await spend(sources, { rate: 8, id: 'job', expires: '1h' }))
    expect(spent.granted).toEqual([5, 3, 0])
    const limiters = [Ratelimit.unlimited(), undefined, undefined]
    const settled = await spent.commit(8 + grants, { limiters })
    expect(settled).toMatchObject({ granted: [5 + grants, 3, 0] })
    clock.advance(30 * 24 * HOUR_MS)
    expect(await monthly.limit('key')).toMatchObject({ ended: { used: 3, reserved: 0 } })
  })
})

describe('the cost', () => {
  test('below the estimate goes back to the grants that paid, the last one first, then to the month', async () => {
    const { credits, books, spendFor } = monthAndCredits()
    await credits.grant('key', 5, { id: 'a', expires: '1d' })
    await credits.grant('key', 5, { id: 'b' })
    const spent = allowed(await spendFor(18))
    expect(await spent.commit(11)).toMatchObject({
      granted: [10, 1],
      results: [
        { success: true, remaining: 0 },
        { success: true, returned: 7, remaining: 9 },
      ],
    })
    expect(await books()).toEqual({ month: 10, a: 4, b: 5 })
    await expect(spent.commit(11)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    const all = await spendFor(5)
    expect(await all.release()).toMatchObject({ granted: [0, 0] })
    expect(await books()).toEqual({ month: 10, a: 4, b: 5 })
  })

  test('is not given back to a grant that has ended', async () => {
    const { credits, clock, books, spendFor } = monthAndCredits()
    await credits.grant('key', 5, { id: 'a', expires: '1h' })
    await credits.grant('key', 5, { id: 'b' })
    const spent = await spendFor(17)
    clock.advance(HOUR_MS)
    expect(await spent.release()).toMatchObject({
      granted: [0, 5],
      results: [
        { returned: 10, remaining: 10 },
        { returned: 2, remaining: 5 },
      ],
    })
    expect(await books()).toEqual({ month: 0, a: 0, b: 5 })
  })

  test('gives credits that paid a debt no more than they paid of the cost', async () => {
    const { credits, books, spendFor } = monthAndCredits()
    await credits.limit('key', { rate: 4, force: true })
    await credits.grant('key', 10, { id: 'a' })
    const spent = await spendFor(15)
    expect(await spent.release()).toMatchObject({ granted: [0, 0] })
    expect(await books()).toEqual({ month: 0, a: 6 })
    expect(await credits.getRemaining('key')).toMatchObject({ used: 4, remaining: 6 })
  })

  test('above the estimate is taken from the sources in their order, and the rest is a debt of the credits', async () => {
    const { credits, books, spendFor } = monthAndCredits()
    await credits.grant('key', 5, { id: 'a' })
    const spent = allowed(await spendFor(4))
    expect(await spent.commit(18)).toMatchObject({
      granted: [10, 8],
      results: [{ remaining: 0 }, { success: true, limit: 5, remaining: 0 }],
    })
    expect(await books()).toEqual({ month: 10, a: 0 })
    expect(await credits.getRemaining('key')).toMatchObject({ used: 8, remaining: 0 })
  })

  test('above the estimate can be a debt of the month, after what the credits have beyond their own', async () => {
    const { credits, books, spendFor } = monthAndCredits()
    await credits.limit('key', { rate: 2, force: true })
    await credits.grant('key', 5, { id: 'a' })
    const spent = allowed(await spendFor(10))
    expect(await spent.commit(16, { debt: 'first' })).toMatchObject({ granted: [13, 3] })
    expect(await books()).toEqual({ month: 13, a: 0 })
    expect(await credits.getRemaining('key')).toMatchObject({ used: 5, remaining: 0 })
  })

  test('without any grant becomes a debt', async () => {
    const { credits, requests } = monthAndCredits()
    await credits.grant('key', 1, { id: 'a', expires: '1h' })
    const spent = allowed(await spend(requests.slice(1), { rate: 1 }))
    expect(await spent.commit(4)).toMatchObject({ granted: [4], results: [{ remaining: 0 }] })
    expect(await credits.getRemaining('key')).toMatchObject({ used: 4 })
    const same = allowed(await spend([...requests], { rate: 2 }))
    expect(await same.commit(2)).toMatchObject({ granted: [2, 0] })
  })
})

test('an id is spent once, and a denial does not use it up', async () => {
  const { credits, books, spendFor } = monthAndCredits()
  const once = { id: 'event', for: '1d' } as const
  expect(await spendFor(12, { once })).toMatchObject({ success: false })
  await credits.grant('key', 5, { id: 'a' })
  expect(await spendFor(12, { once })).toMatchObject({ success: true, granted: [10, 2] })
  const again = await spendFor(12, { once })
  expect(again).toMatchObject({ success: true, repeated: true, granted: [0, 0] })
  if (again.success) await expect(again.commit(1)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  expect(await books()).toEqual({ month: 10, a: 3 })
})

test('a commit keeps what was spent and what was settled', async () => {
  const { credits, books, spendFor } = monthAndCredits()
  await credits.grant('key', 5, { id: 'a' })
  const spent = await database.db.transaction((tx) => spendFor(12, { tx }))
  expect(await books()).toEqual({ month: 10, a: 3 })
  if (!spent.success) throw new Error('denied')
  await database.db.transaction((tx) => spent.commit(14, { tx }))
  expect(await books()).toEqual({ month: 10, a: 1 })
})

test('a rollback undoes what was spent and what was settled, which can be settled again', async () => {
  const { credits, books, spendFor } = monthAndCredits()
  await credits.grant('key', 5, { id: 'a' })
  await undone(database.db, async (tx) => {
    const spent = await spendFor(12, { tx })
    expect(spent).toMatchObject({ success: true, granted: [10, 2] })
  })
  expect(await books()).toEqual({ month: 0, a: 5 })
  const spent = allowed(await spendFor(12))
  await undone(database.db, async (tx) => {
    expect(await spent.commit(11, { tx })).toMatchObject({ granted: [10, 1] })
  })
  expect(await books()).toEqual({ month: 10, a: 3 })
  expect(await spent.commit(11)).toMatchObject({ granted: [10, 1] })
  expect(await books()).toEqual({ month: 10, a: 4 })
})

test('a threshold on the credits is crossed by the call that takes from them', async () => {
  const { monthly, requests, clock } = monthAndCredits()
  const credits = new Credits({
    ...{ db: database.db, dated: true, prefix: `beside ${++prefixes}`, durable: true },
    ...{ clock: clock.now, cleanupProbability: 0, thresholds: [{ left: 5 }] },
  })
  for (const id of ['a', 'b', 'c']) await credits.grant('key', 4, { id })
  const both = [...requests.slice(0, 1), { ratelimit: credits, key: 'key' }]
  expect((await spend(both, { rate: 16 })).results[1]).not.toHaveProperty('crossed')
  expect((await spend(both, { rate: 1 })).results[1]).toMatchObject({ crossed: [{ left: 5 }] })
  expect((await monthly.getRemaining('key')).used).toBe(10)
})

test('of equal calls at once the month pays those that it can, and then the grants pay', async () => {
  const { credits, books, spendFor } = monthAndCredits()
  await credits.grant('key', 5, { id: 'a' })
  await spendFor(1)
  const spent = await Promise.all(Array.from({ length: 5 }, () => spendFor(3)))
  const sum = (place: number) => spent.reduce((all, { granted }) => all + (granted[place] ?? 0), 0)
  expect([spent.filter(({ success }) => success).length, sum(0), sum(1)]).toEqual([4, 9, 3])
  const byMonth = spent.filter(({ granted }) => granted[0] === 3)
  expect(byMonth.map(({ results }) => results[0]?.remaining)).toEqual([6, 3, 0])
  expect(await books()).toEqual({ month: 10, a: 2 })
  for (const each of byMonth) await each.release()
  expect(await books()).toEqual({ month: 1, a: 2 })
})

test('a call is one read and one charge, and one more if it shows that the month has too little', async () => {
  const watched = watch(database.db)
  const options = { db: watched.db, cleanupProbability: 0 }
  const month = new Quota({ ...options, limiter: Ratelimit.fixedWindow(10, '1h'), prefix: 'counted' })
  const credits = new Credits({ ...{ ...options, dated: true, prefix: 'counted credits', durable: true } })
  await credits.grant('key', 50, { id: 'a' })
  const both = [
    { ratelimit: month, key: 'key' },
    { ratelimit: credits, key: 'key' },
  ]
  const sent = async (rate: number) => {
    const before = watched.statements.length
    await spend(both, { rate })
    return watched.statements.length - before
  }
  await sent(1)
  expect(await sent(1)).toBe(2)
  expect(await sent(20)).toBe(2)
  expect(await sent(100)).toBe(3)
  expect(await sent(1)).toBe(3)
  expect(await sent(1)).toBe(2)
})

test('what does not go together is refused before any SQL', async () => {
  const watched = watch(database.db)
  const clock = { clock: () => new Date(0) }
  const on = (options: object) =>
    new Quota({ db: watched.db, prefix: `refused ${++prefixes}`, ...clock, ...options } as never)
  const credits = new Credits({ db: watched.db, prefix: `refused ${++prefixes}`, ...clock, dated: true })
  const [window, dry] = [Ratelimit.fixedWindow(10, '1h'), { dryRun: true }]
  const same = on({ limiter: window })
  const of = (ratelimit: object, key = 'key', more = {}) => ({ ratelimit, key, ...more })
  for (const [requests, options, code] of [
    [[of(credits), of(credits)], { rate: 1 }, 'INVALID_OPTION'],
    [[of(credits), of(same), of(same)], { rate: 1 }, 'INVALID_OPTION'],
    [[of(credits, 'key', { limiter: window })], { rate: 1 }, 'INVALID_OPTION'],
    [[of(on({ limiter: window, ...dry })), of(credits)], { rate: 1 }, 'INVALID_OPTION'],
    [[of(credits, '')], { rate: 1 }, 'INVALID_KEY'],
    [[of(credits, 'x'.repeat(2000))], { rate: 1 }, 'INVALID_KEY'],
    [[of(credits)], { rate: 0.5 }, 'INVALID_RATE'],
    [[of(credits)], { rate: 0, atLeast: 0 }, 'INVALID_RATE'],
    [[of(credits)], { rate: -1 }, 'INVALID_RATE'],
    [[of(credits)], {}, 'INVALID_RATE'],
    [[of(credits)], { rate: 1, atLeast: 2 }, 'INVALID_RATE'],
  ] as const) {
    // Untyped callers may give anything.
    await expect(spend(requests as never, options as never)).rejects.toMatchObject({ code })
  }
  expect(watched.statements).toEqual([])
})

describe('a connection that breaks', () => {
  /** The same sources on a database that breaks at the statements that `breaks` names. */
  async function onBreaking() {
    const fault = { breaks: (_text: string) => false }
    const watched = watch(database.db, (text) => {
      if (fault.breaks(text)) throw new Error('The connection broke.')
    })
    const { monthly, credits, books, clock, spendFor: before } = monthAndCredits()
    await credits.grant('key', 5, { id: 'a' })
    // So that the row of the month exists.
    await before(1)
    const options = { db: watched.db, clock: clock.now, cleanupProbability: 0 }
    const broken = [
      {
        ratelimit: new Ratelimit({ ...options, limiter: monthly.limiter, prefix: monthly.prefix }),
        key: 'key',
      },
      {
        ratelimit: new Credits({ ...{ ...options, dated: true, prefix: credits.prefix, durable: true } }),
        key: 'key',
      },
    ]
    const spendFor = (rate: number) => spend(broken, { rate })
    return { fault, books, spendFor }
  }

  const isList = (text: string) => text.includes('for update')

  test('before the list has charged nothing', async () => {
    const { fault, books, spendFor } = await onBreaking()
    for (const breaks of [(text: string) => !isList(text), isList]) {
      fault.breaks = breaks
      await expect(spendFor(12)).rejects.toMatchObject({ name: 'RatelimitError' })
    }
    fault.breaks = () => false
    expect(await books()).toEqual({ month: 1, a: 5 })
    expect(await spendFor(12)).toMatchObject({ success: true, granted: [9, 3] })
  })

  test('after the list changes no answer, because nothing is asked after it', async () => {
    const { fault, books, spendFor } = await onBreaking()
    let lists = 0
    fault.breaks = (text) => {
      if (isList(text)) lists++
      return lists > 0 && !isList(text)
    }
    const spent = allowed(await spendFor(12))
    lists = 0
    expect(await spent.commit(11)).toMatchObject({ granted: [9, 2] })
    fault.breaks = () => false
    expect(await books()).toEqual({ month: 10, a: 3 })
  })
})
