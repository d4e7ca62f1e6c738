import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits, type CreditsConfig } from '../../../src/credits/index.ts'
import { type Limiter, Ratelimit } from '../../../src/index.ts'
import {
  closePeriods,
  openReservations,
  Quota,
  type QuotaConfig,
  reserveAll,
  settle,
  settleExpired,
  spend,
} from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { HOUR_MS, JANUARY, oneOfEachKind, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

// Names of `spend` and of `reserveAll`: each limit has a reservation, and they are settled together.

const database = useDatabase()
const NAMED = { id: 'job', expires: '10m' } as const

/** Two limits of one customer, and the same limits in a process that shares nothing but the tables. */
function sourcesOf<Last extends Limiter | 'credits'>(
  first: Limiter,
  last: Last,
  options: Partial<QuotaConfig> = {},
) {
  const one = quotaOn(database, first, options)
  const prefix = `${one.prefix} last`
  const { keepEnded: _, grace: _grace, limiter: _limiter, ...common } = one.config
  const makeLast = () =>
    (last === 'credits'
      ? new Credits({ ...common, prefix } as CreditsConfig<false>)
      : new Quota({ ...one.config, prefix, limiter: last })) as Last extends Limiter ? Quota : Credits
  const quotas = [one.quota, makeLast()] as const
  const others = [new Quota(one.config), makeLast()] as const
  const requestsOf = ([month, credits]: typeof quotas) =>
    [
      { ratelimit: month, key: 'org' },
      { ratelimit: credits, key: 'org' },
    ] as const
  const used = async () => Promise.all(quotas.map(async (quota) => (await quota.getRemaining('org')).used))
  return { ...one, quotas, others, mine: requestsOf(quotas), theirs: requestsOf(others), used }
}

/** Ten of a month, and a hundred credits. */
async function monthAndCredits(options: Partial<QuotaConfig> = {}) {
  const sources = sourcesOf(TEN['calendar month'], 'credits', options)
  await sources.quotas[1].grant('org', 100)
  return sources
}

describe('spend', () => {
  test('settled above its estimate crosses the thresholds of the estimate and of the rest, once', async () => {
    const thresholds = [0.5, { used: 10 }, { used: 12 }]
    const { mine, theirs } = await monthAndCredits({ thresholds })
    const spent = await spend(mine, { rate: 14, ...NAMED })
    expect(spent.results.map((each) => 'crossed' in each)).toEqual([false, false])
    const settled = await settle(theirs, 'job', { actual: 30 })
    expect(settled.results).toMatchObject([{ crossed: [0.5, { used: 10 }] }, { remaining: 80 }])
    const again = await settle(theirs, 'job', { actual: 30 })
    expect(again.results.map((each) => 'crossed' in each)).toEqual([false, false])
  })

  test('settled above its estimate in the next period hands out the period that has ended', async () => {
    const { mine, theirs, clock } = await monthAndCredits({ keepEnded: true })
    await spend(mine, { rate: 8, ...NAMED })
    clock.advance(40 * 24 * HOUR_MS)
    const settled = await settle(theirs, 'job', { actual: 30 })
    expect(settled).toMatchObject({ granted: [18, 12] })
    expect(settled.results[0]).toMatchObject({ ended: { used: 8 } })
  })

  test.each([
    [0, [0, 0], [0, 0]],
    [3, [3, 0], [3, 0]],
    [12, [10, 2], [10, 2]],
    [14, [10, 4], [10, 4]],
    [20, [10, 10], [10, 10]],
    [120, [10, 110], [10, 110]],
  ])('another process settles %d of 14, once', async (actual, granted, used) => {
    const sources = await monthAndCredits()
    const spent = await spend(sources.mine, { rate: 14, ...NAMED })
    expect(spent).toMatchObject({ success: true, granted: [10, 4] })
    expect(spent).not.toHaveProperty('repeated')
    const settled = await settle(sources.theirs, 'job', { actual })
    expect(settled.granted).toEqual(granted)
    expect(settled).not.toHaveProperty('repeated')
    expect(await sources.used()).toEqual(used)
    expect(await settle(sources.mine, 'job', { actual })).toMatchObject({ repeated: true })
    expect(await sources.used()).toEqual(used)
    const again = settle(sources.mine, 'job', { actual: actual + 1 })
    await expect(again).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    const released = spent.release().then(
      ({ repeated }) => repeated,
      ({ code }) => code,
    )
    expect(await released).toBe(actual === 0 ? true : 'ALREADY_SETTLED')
  })

  test('what none of the limits has becomes the debt of the limit that is named', async () => {
    const sources = await monthAndCredits()
    await spend(sources.mine, { rate: 14, ...NAMED })
    const settled = await settle(sources.theirs, 'job', { actual: 120, debt: 'first' })
    expect(settled.granted).toEqual([20, 100])
    expect(await sources.used()).toEqual([20, 100])
  })

  test('the same name again charges nothing, and its commit settles the first one', async () => {
    const sources = await monthAndCredits()
    await spend(sources.mine, { rate: 14, ...NAMED })
    const again = await spend(sources.theirs, { rate: 50, ...NAMED })
    expect(again).toMatchObject({ success: true, repeated: true, granted: [0, 0] })
    expect(await sources.used()).toEqual([10, 4])
    if (!again.success) throw new Error('denied')
    expect(await again.commit(11)).toMatchObject({ granted: [10, 1] })
    expect(await again.commit(11)).toMatchObject({ repeated: true })
    expect(await sources.used()).toEqual([10, 1])
  })

  test('a denial leaves the name free, and so does a rollback', async () => {
    const sources = await monthAndCredits()
    expect(await spend(sources.mine, { rate: 111, ...NAMED })).toMatchObject({ success: false })
    await undone(database.db, async (tx) => {
      expect(await spend(sources.mine, { rate: 14, tx, ...NAMED })).toMatchObject({ success: true })
    })
    expect(await sources.used()).toEqual([0, 0])
    const none = settle(sources.theirs, 'job', { actual: 1 })
    await expect(none).rejects.toMatchObject({ code: 'NOT_RESERVED' })
    expect(await spend(sources.mine, { rate: 110, ...NAMED })).toMatchObject({ granted: [10, 100] })
  })

  test.each([3, 14, 20, 120])('a rollback of settling %d opens it again', async (actual) => {
    const sources = await monthAndCredits()
    await spend(sources.mine, { rate: 14, ...NAMED })
    await undone(database.db, async (tx) => {
      await settle(sources.theirs, 'job', { actual, tx })
    })
    expect(await sources.used()).toEqual([10, 4])
    expect(await settle(sources.theirs, 'job', { actual: 5 })).toMatchObject({ granted: [5, 0] })
  })

  test('a part that settleExpired has ended makes the rest impossible to settle, and is listed until then', async () => {
    const sources = await monthAndCredits()
    const [month, credits] = sources.quotas
    await spend(sources.mine, { rate: 14, ...NAMED })
    const open = await openReservations(credits)
    expect(open).toMatchObject([{ key: 'org', id: 'job', rate: 4 }])
    sources.clock.advance(HOUR_MS)
    const end = (ratelimit: Quota | Credits) =>
      database.db.transaction((tx) => settleExpired(ratelimit, { tx, as: 'release' }))
    expect(await end(credits)).toMatchObject([{ key: 'org', id: 'job', rate: 4, returned: 4 }])
    const late = settle(sources.theirs, 'job', { actual: 12 })
    await expect(late).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await sources.used()).toEqual([10, 0])
    expect(await end(month)).toMatchObject([{ rate: 10, returned: 10 }])
    expect(await sources.used()).toEqual([0, 0])
    expect(await settle(sources.theirs, 'job', { actual: 0 })).toMatchObject({ repeated: true })
  })

  test('those of a key are listed without those of longer keys that begin like it', async () => {
    const { quota } = quotaOn(database, Ratelimit.fixedWindow(10, '1h'))
    for (const key of ['org/team', 'org/', 'organisation']) {
      await quota.reserve(key, { id: 'theirs', expires: '1m' })
    }
    await quota.reserve('org', { id: 'own/one', expires: '10m' })
    const open = await openReservations(quota, { key: 'org', limit: 1 })
    expect(open).toMatchObject([{ key: 'org', id: 'own/one' }])
  })

  test('a limit that has paid nothing has a reservation of 0, which ends with the others', async () => {
    const sources = await monthAndCredits()
    await spend(sources.mine, { rate: 6, ...NAMED })
    const [, credits] = sources.quotas
    expect(await openReservations(credits)).toMatchObject([{ rate: 0 }])
    expect(await settle(sources.theirs, 'job', { actual: 13 })).toMatchObject({ granted: [10, 3] })
    expect(await openReservations(credits)).toEqual([])
  })

  test('an unlimited plan pays the rest, and gets it back', async () => {
    const sources = sourcesOf(TEN['fixed window'], Ratelimit.unlimited())
    expect(await spend(sources.mine, { rate: 14, ...NAMED })).toMatchObject({ granted: [10, 4] })
    const settled = await settle(sources.theirs, 'job', { actual: 11 })
    expect(settled.granted).toEqual([10, 1])
    const both = sourcesOf(Ratelimit.unlimited(), Ratelimit.unlimited())
    const refused = spend(both.mine, { rate: 1, ...NAMED })
    await expect(refused).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })

  test('another name of one of the limits refuses the whole call', async () => {
    const sources = await monthAndCredits()
    await sources.quotas[1].reserve('org', { rate: 5, ...NAMED })
    const refused = spend(sources.mine, { rate: 14, ...NAMED })
    await expect(refused).rejects.toMatchObject({ code: 'OTHER_RESERVATION' })
    expect(await sources.used()).toEqual([0, 5])
  })

  test('it is reserved until it is settled, and crosses a threshold then', async () => {
    const thresholds = [0.5]
    const sources = await monthAndCredits({ thresholds, keepEnded: true, durable: true })
    const [month] = sources.quotas
    await spend(sources.mine, { rate: 8, ...NAMED })
    const settled = await settle(sources.theirs, 'job', { actual: 6 })
    expect(settled.results[0]).toMatchObject({ returned: 2, crossed: [0.5] })
    await spend(sources.mine, { rate: 3, id: 'open', expires: '10m' })
    sources.clock.ms = JANUARY.end + 1
    const ended = await database.db.transaction((tx) => closePeriods(month, { tx }))
    expect(ended).toMatchObject([{ used: 9, reserved: 3 }])
  })

  test.each([
    [5, { returned: 5 }, [0, 0]],
    [14, {}, [0, 4]],
    [20, {}, [6, 4]],
  ])('in the grace time %d corrects the month that has ended', async (actual, first, used) => {
    const grace = { keepEnded: true, grace: '1h', durable: true } as const
    const sources = sourcesOf(TEN['calendar month'], 'credits', grace)
    await sources.quotas[1].grant('org', 100)
    sources.clock.ms = JANUARY.end - 1
    await spend(sources.mine, { rate: 14, ...NAMED })
    sources.clock.ms = JANUARY.end + 1
    const settled = await settle(sources.theirs, 'job', { actual })
    if (actual <= 14) expect(settled.results[0]).toMatchObject(first)
    expect(settled.granted.reduce((sum, each) => sum + each, 0)).toBe(actual)
    expect(await sources.used()).toEqual(used)
  })

  test('keys and names are hashed with hashKeys', async () => {
    const sources = await monthAndCredits({ hashKeys: true })
    await spend(sources.mine, { rate: 14, ...NAMED })
    const rows = await database.rows(
      `select key from rate_limit_ephemeral where prefix like 'drizzle-ratelimit/reserved/${sources.prefix}%'`,
    )
    expect(rows).toHaveLength(2)
    expect(rows.filter(({ key }) => String(key).includes('org'))).toEqual([])
    expect(await settle(sources.theirs, 'job', { actual: 3 })).toMatchObject({ granted: [3, 0] })
  })

  test('it is one statement, to settle is another one, and a look first in another process', async () => {
    const { db, statements } = watch(database.db)
    const sources = await monthAndCredits({ db, preparedStatements: false })
    await sources.quotas[0].limit('org', { rate: 1 })
    statements.length = 0
    await spend(sources.mine, { rate: 14, ...NAMED })
    expect(statements).toHaveLength(1)
    statements.length = 0
    await settle(sources.mine, 'job', { actual: 3 })
    expect(statements).toHaveLength(1)
    await spend(sources.mine, { rate: 4, id: 'other', expires: '1h' })
    statements.length = 0
    await settle(sources.theirs, 'other', { actual: 3 })
    expect(statements).toHaveLength(2)
  })

  test.each(oneOfEachKind)('$name: a name does what commit does without one', async ({ of }) => {
    const last = of(10, '1h').limiter
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 0, max: 30 }),
        fc.constantFrom('first' as const, 'last' as const),
        fc.constantFrom(0, HOUR_MS / 2, 20 * HOUR_MS),
        fc.constantFrom('mine' as const, 'theirs' as const),
        async (rate, actual, debt, later, whose) => {
          const named = sourcesOf(TEN['interval bucket'], last)
          const plain = sourcesOf(TEN['interval bucket'], last)
          const [one, other] = await Promise.all([
            spend(named.mine, { rate, ...NAMED }),
            spend(plain.mine, { rate }),
          ])
          expect(one.granted).toEqual(other.granted)
          if (!one.success || !other.success) throw new Error('denied')
          for (const { clock } of [named, plain]) clock.advance(later)
          const byName = await settle(named[whose], 'job', { actual, debt })
          const byCommit = await other.commit(actual, { debt })
          expect(byName.granted).toEqual(byCommit.granted)
          expect(await named.used()).toEqual(await plain.used())
        },
      ),
      runs(20),
    )
  })

  test('what is refused before any SQL', async () => {
    const { db, statements } = watch(database.db)
    const sources = sourcesOf(TEN['fixed window'], 'credits', { db })
    const [{ ratelimit }] = sources.mine
    const untyped = spend as (requests: unknown, options: unknown) => Promise<unknown>
    const wrong = [
      untyped(sources.mine, { rate: 4, id: 'job' }),
      untyped(sources.mine, { rate: 4, expires: '1h' }),
      untyped(sources.mine, { rate: 4, ...NAMED, id: '' }),
      untyped(sources.mine, { rate: 4, ...NAMED, once: { id: 'a', for: '1h' } }),
      untyped([...sources.mine, { ratelimit, key: 'org' }], { rate: 4, ...NAMED }),
      settle(sources.mine, '', { actual: 4 }),
      settle(sources.mine, 'job', { actual: -1 }),
      settle(sources.mine, 'job', { actual: 4, debt: 'middle' as 'last' }),
      settle(sources.mine, 'job', { actual: 4, ...({ dept: 'last' } as object) }),
      settle([], 'job', { actual: 4 }),
    ]
    for (const call of wrong) {
      await expect(call).rejects.toMatchObject({
        code: expect.stringMatching(/^INVALID_(OPTION|RATE|DURATION)$/),
      })
    }
    expect(statements).toEqual([])
  })

  test.each(['mine', 'theirs'] as const)('a list in place of one cost is refused: %s', async (whose) => {
    const sources = await monthAndCredits()
    await spend(sources.mine, { ...NAMED, rate: 15 })
    const each = () => settle(sources[whose], 'job', { actual: [3, 0] })
    await expect(each()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await sources.used()).toEqual([10, 5])
    expect(await settle(sources[whose], 'job', { actual: 3 })).toMatchObject({ granted: [3, 0] })
    await expect(each()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await sources.used()).toEqual([3, 0])
  })

  test('of one limit, a list of one cost says the same as the cost', async () => {
    const { mine, used } = await monthAndCredits()
    const [month] = mine
    await spend([month], { ...NAMED, rate: 5 })
    expect(await settle([month], 'job', { actual: [2] })).toMatchObject({ granted: [2] })
    await reserveAll([{ ...month, rate: 5 }], { ...NAMED, id: 'other' })
    expect(await settle([month], 'other', { actual: 3 })).toMatchObject({ granted: [3] })
    expect(await used()).toEqual([5, 0])
  })
})

describe('reserveAll', () => {
  test('after a denial, a settlement knows nothing of the estimates that were not charged', async () => {
    const { mine, theirs, used } = sourcesOf(TEN['calendar month'], 'credits')
    const [month, credits] = mine
    const denied = await reserveAll(
      [
        { ...month, rate: 5 },
        { ...credits, rate: 5 },
      ],
      { id: 'job', expires: '1d' },
    )
    expect(denied).toMatchObject({ success: false })
    await theirs[0].ratelimit.reserve('org', { rate: 5, id: 'job', expires: '10m' })
    await month.ratelimit.settle({ key: 'org', id: 'job' }, 3)
    expect(await used()).toEqual([3, 0])
  })

  test('another process settles all, once', async () => {
    const sources = await monthAndCredits()
    const [month, credits] = sources.mine
    const requests = [
      { ...month, rate: 4 },
      { ...credits, rate: 30 },
    ]
    expect(await reserveAll(requests, NAMED)).toMatchObject({ success: true })
    expect(await sources.used()).toEqual([4, 30])
    const again = await reserveAll(requests, NAMED)
    expect(again).toMatchObject({ success: true, repeated: true })
    expect(await sources.used()).toEqual([4, 30])
    expect((await settle(sources.theirs, 'job', { actual: [6, 20] })).results).toMatchObject([
      {},
      { returned: 10 },
    ])
    expect(await sources.used()).toEqual([6, 20])
    if (!again.success) throw new Error('denied')
    expect(await again.commit([6, 20])).toMatchObject([{ repeated: true }, { repeated: true }])
    await expect(again.release()).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await sources.used()).toEqual([6, 20])
  })

  test('each can be settled by its own name in a transaction, and a rollback opens both', async () => {
    const sources = await monthAndCredits()
    const [month, credits] = sources.others
    const requests = sources.mine.map((request) => ({ ...request, rate: 4 }))
    await reserveAll(requests, NAMED)
    const name = { key: 'org', id: 'job' }
    await undone(database.db, async (tx) => {
      await settle(sources.theirs, 'job', { actual: [0, 0], tx })
    })
    await database.db.transaction(async (tx) => {
      await month.settle(name, 1, { tx })
      await credits.settle(name, 2, { tx })
    })
    expect(await sources.used()).toEqual([1, 2])
    expect((await settle(sources.theirs, 'job', { actual: [1, 2] })).results).toMatchObject([
      { repeated: true },
      { repeated: true },
    ])
  })

  test('one that was settled alone keeps the others open', async () => {
    const sources = await monthAndCredits()
    await reserveAll(
      sources.mine.map((request) => ({ ...request, rate: 4 })),
      NAMED,
    )
    await sources.quotas[0].settle({ key: 'org', id: 'job' }, 1)
    const late = settle(sources.theirs, 'job', { actual: [1, 2] })
    await expect(late).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await sources.used()).toEqual([1, 4])
    expect(await sources.quotas[1].settle({ key: 'org', id: 'job' }, 2)).toMatchObject({ returned: 2 })
  })

  test('a plan of its own is needed to settle by the name, and commit knows it', async () => {
    const limiter = calendarWindow(1000, 'month')
    const sources = await monthAndCredits()
    const [month, credits] = sources.mine
    const requests = [{ ...month, rate: 4, limiter }, credits]
    const reserved = await reserveAll(requests, NAMED)
    const without = settle(sources.theirs, 'job', { actual: [1, 1] })
    await expect(without).rejects.toMatchObject({ code: 'OTHER_PLAN' })
    if (!reserved.success) throw new Error('denied')
    expect(await reserved.commit([5, 0])).toMatchObject([{ limit: 1000 }, { returned: 1 }])
    expect(await sources.used()).toEqual([5, 0])
  })

  test.each(['mine', 'theirs'] as const)('one cost in place of a list is refused: %s', async (whose) => {
    const sources = await monthAndCredits()
    await reserveAll(
      sources.mine.map((request) => ({ ...request, rate: 4 })),
      NAMED,
    )
    const one = () => settle(sources[whose], 'job', { actual: 3 })
    await expect(one()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await sources.used()).toEqual([4, 4])
    expect(await settle(sources[whose], 'job', { actual: [3, 0] })).toMatchObject({ granted: [3, 0] })
    await expect(one()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await sources.used()).toEqual([3, 0])
  })

  test('two requests for one row have no name', async () => {
    const sources = await monthAndCredits()
    const [month] = sources.mine
    const twice = reserveAll([month, month], NAMED)
    await expect(twice).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    for (const settling of [
      settle([month, month], 'job', { actual: [1, 1] }),
      settle([month, month], 'job', { actual: 1 }),
    ]) {
      await expect(settling).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    }
    const wrong = settle(sources.theirs, 'job', { actual: [1] })
    await expect(wrong).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await sources.used()).toEqual([0, 0])
  })
})
