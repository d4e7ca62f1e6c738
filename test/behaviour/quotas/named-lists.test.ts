import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar.ts'
import {
  closePeriods,
  type Limiter,
  openReservations,
  Ratelimit,
  type RatelimitConfig,
  type SpendRequest,
  settleExpired,
} from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { watch } from '../../support/watch.ts'
import { HOUR_MS, JANUARY, oneOfEachKind, quotaOn, TEN, UNDO } from './ten.ts'

// Names of `spend` and of `reserveAll`: each limit has a reservation, and they are settled together.

const database = useDatabase()
const NAMED = { id: 'job', expires: '10m' } as const

/** Two limits of one customer, and the same limits in a process that shares nothing but the tables. */
function sourcesOf(first: Limiter, last: Limiter, options: Partial<RatelimitConfig> = {}) {
  const one = quotaOn(database, first, options)
  const config = { ...one.config, prefix: `${one.prefix} last`, limiter: last }
  const quotas = [one.quota, new Ratelimit(config)] as const
  const others = [new Ratelimit(one.config), new Ratelimit(config)] as const
  const requestsOf = ([month, credits]: typeof quotas): [SpendRequest, SpendRequest] => [
    { ratelimit: month, key: 'org' },
    { ratelimit: credits, key: 'org' },
  ]
  const used = async () => Promise.all(quotas.map(async (quota) => (await quota.getRemaining('org')).used))
  return { ...one, quotas, others, mine: requestsOf(quotas), theirs: requestsOf(others), used }
}

/** Ten of a month, and a hundred credits. */
async function monthAndCredits(options: Partial<RatelimitConfig> = {}) {
  const sources = sourcesOf(TEN['calendar month'], Ratelimit.balance(), options)
  await sources.quotas[1].grant('org', 100)
  return sources
}

describe('spend', () => {
  test('settled above its estimate crosses the thresholds of the estimate and of the rest, once', async () => {
    const thresholds = [0.5, { used: 10 }, { used: 12 }]
    const { mine, theirs } = await monthAndCredits({ thresholds })
    const spent = await Ratelimit.spend(mine, { rate: 14, ...NAMED })
    expect(spent.results.map((each) => 'crossed' in each)).toEqual([false, false])
    const settled = await Ratelimit.settleSpent(theirs, 'job', 30)
    expect(settled.results).toMatchObject([{ crossed: [0.5, { used: 10 }] }, { remaining: 80 }])
    const again = await Ratelimit.settleSpent(theirs, 'job', 30)
    expect(again.results.map((each) => 'crossed' in each)).toEqual([false, false])
  })

  test('settled above its estimate in the next period hands out the period that has ended', async () => {
    const { mine, theirs, clock } = await monthAndCredits({ keepEnded: true })
    await Ratelimit.spend(mine, { rate: 8, ...NAMED })
    clock.advance(40 * 24 * HOUR_MS)
    const settled = await Ratelimit.settleSpent(theirs, 'job', 30)
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
    const spent = await Ratelimit.spend(sources.mine, { rate: 14, ...NAMED })
    expect(spent).toMatchObject({ success: true, granted: [10, 4] })
    expect(spent).not.toHaveProperty('repeated')
    const settled = await Ratelimit.settleSpent(sources.theirs, 'job', actual)
    expect(settled.granted).toEqual(granted)
    expect(settled).not.toHaveProperty('repeated')
    expect(await sources.used()).toEqual(used)
    expect(await Ratelimit.settleSpent(sources.mine, 'job', actual)).toMatchObject({ repeated: true })
    expect(await sources.used()).toEqual(used)
    const again = Ratelimit.settleSpent(sources.mine, 'job', actual + 1)
    await expect(again).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    const released = spent.release().then(
      ({ repeated }) => repeated,
      ({ code }) => code,
    )
    expect(await released).toBe(actual === 0 ? true : 'ALREADY_SETTLED')
  })

  test('what none of the limits has becomes the debt of the limit that is named', async () => {
    const sources = await monthAndCredits()
    await Ratelimit.spend(sources.mine, { rate: 14, ...NAMED })
    const settled = await Ratelimit.settleSpent(sources.theirs, 'job', 120, { debt: 'first' })
    expect(settled.granted).toEqual([20, 100])
    expect(await sources.used()).toEqual([20, 100])
  })

  test('the same name again charges nothing, and its commit settles the first one', async () => {
    const sources = await monthAndCredits()
    await Ratelimit.spend(sources.mine, { rate: 14, ...NAMED })
    const again = await Ratelimit.spend(sources.theirs, { rate: 50, ...NAMED })
    expect(again).toMatchObject({ success: true, repeated: true, granted: [0, 0] })
    expect(await sources.used()).toEqual([10, 4])
    if (!again.success) throw new Error('denied')
    expect(await again.commit(11)).toMatchObject({ granted: [10, 1] })
    expect(await again.commit(11)).toMatchObject({ repeated: true })
    expect(await sources.used()).toEqual([10, 1])
  })

  test('a denial leaves the name free, and so does a rollback', async () => {
    const sources = await monthAndCredits()
    expect(await Ratelimit.spend(sources.mine, { rate: 111, ...NAMED })).toMatchObject({ success: false })
    const undone = database.db.transaction(async (tx) => {
      expect(await Ratelimit.spend(sources.mine, { rate: 14, tx, ...NAMED })).toMatchObject({ success: true })
      throw UNDO
    })
    await expect(undone).rejects.toBe(UNDO)
    expect(await sources.used()).toEqual([0, 0])
    const none = Ratelimit.settleSpent(sources.theirs, 'job', 1)
    await expect(none).rejects.toMatchObject({ code: 'NOT_RESERVED' })
    expect(await Ratelimit.spend(sources.mine, { rate: 110, ...NAMED })).toMatchObject({ granted: [10, 100] })
  })

  test.each([3, 14, 20, 120])('a rollback of settling %d opens it again', async (actual) => {
    const sources = await monthAndCredits()
    await Ratelimit.spend(sources.mine, { rate: 14, ...NAMED })
    const undone = database.db.transaction(async (tx) => {
      await Ratelimit.settleSpent(sources.theirs, 'job', actual, { tx })
      throw UNDO
    })
    await expect(undone).rejects.toBe(UNDO)
    expect(await sources.used()).toEqual([10, 4])
    expect(await Ratelimit.settleSpent(sources.theirs, 'job', 5)).toMatchObject({ granted: [5, 0] })
  })

  test('a part that settleExpired has ended makes the rest impossible to settle, and is listed until then', async () => {
    const sources = await monthAndCredits()
    const [month, credits] = sources.quotas
    await Ratelimit.spend(sources.mine, { rate: 14, ...NAMED })
    const listed = { prefix: credits.prefix, durable: false }
    const open = await openReservations(database.db, listed)
    expect(open).toMatchObject([{ key: 'org', id: 'job', rate: 4 }])
    sources.clock.advance(HOUR_MS)
    const end = (ratelimit: Ratelimit) =>
      database.db.transaction((tx) => settleExpired(tx, { ratelimit, as: 'release' }))
    expect(await end(credits)).toMatchObject([{ key: 'org', id: 'job', rate: 4, returned: 4 }])
    const late = Ratelimit.settleSpent(sources.theirs, 'job', 12)
    await expect(late).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await sources.used()).toEqual([10, 0])
    expect(await end(month)).toMatchObject([{ rate: 10, returned: 10 }])
    expect(await sources.used()).toEqual([0, 0])
    expect(await Ratelimit.settleSpent(sources.theirs, 'job', 0)).toMatchObject({ repeated: true })
  })

  test('those of a key are listed without those of longer keys that begin like it', async () => {
    const { quota, prefix } = quotaOn(database, Ratelimit.fixedWindow(10, '1h'))
    for (const key of ['org/team', 'org/', 'organisation']) {
      await quota.reserve(key, { id: 'theirs', expires: '1m' })
    }
    await quota.reserve('org', { id: 'own/one', expires: '10m' })
    const open = await openReservations(database.db, { prefix, key: 'org', limit: 1, durable: false })
    expect(open).toMatchObject([{ key: 'org', id: 'own/one' }])
  })

  test('a limit that has paid nothing has a reservation of 0, which ends with the others', async () => {
    const sources = await monthAndCredits()
    await Ratelimit.spend(sources.mine, { rate: 6, ...NAMED })
    const listed = { prefix: sources.quotas[1].prefix, durable: false }
    expect(await openReservations(database.db, listed)).toMatchObject([{ rate: 0 }])
    expect(await Ratelimit.settleSpent(sources.theirs, 'job', 13)).toMatchObject({ granted: [10, 3] })
    expect(await openReservations(database.db, listed)).toEqual([])
  })

  test('an unlimited plan pays the rest, and gets it back', async () => {
    const sources = sourcesOf(TEN['fixed window'], Ratelimit.unlimited())
    expect(await Ratelimit.spend(sources.mine, { rate: 14, ...NAMED })).toMatchObject({ granted: [10, 4] })
    const settled = await Ratelimit.settleSpent(sources.theirs, 'job', 11)
    expect(settled.granted).toEqual([10, 1])
    const both = sourcesOf(Ratelimit.unlimited(), Ratelimit.unlimited())
    const refused = Ratelimit.spend(both.mine, { rate: 1, ...NAMED })
    await expect(refused).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })

  test('another name of one of the limits refuses the whole call', async () => {
    const sources = await monthAndCredits()
    await sources.quotas[1].reserve('org', { rate: 5, ...NAMED })
    const refused = Ratelimit.spend(sources.mine, { rate: 14, ...NAMED })
    await expect(refused).rejects.toMatchObject({ code: 'OTHER_RESERVATION' })
    expect(await sources.used()).toEqual([0, 5])
  })

  test('it is reserved until it is settled, and crosses a threshold then', async () => {
    const thresholds = [0.5]
    const sources = await monthAndCredits({ thresholds, keepEnded: true, durable: true })
    const [month] = sources.quotas
    await Ratelimit.spend(sources.mine, { rate: 8, ...NAMED })
    const settled = await Ratelimit.settleSpent(sources.theirs, 'job', 6)
    expect(settled.results[0]).toMatchObject({ returned: 2, crossed: [0.5] })
    await Ratelimit.spend(sources.mine, { rate: 3, id: 'open', expires: '10m' })
    sources.clock.ms = JANUARY.end + 1
    const { limiter } = month
    const ended = await database.db.transaction((tx) =>
      closePeriods(tx, { prefix: sources.prefix, limiter, clock: sources.clock.now }),
    )
    expect(ended).toMatchObject([{ used: 9, reserved: 3 }])
  })

  test.each([
    [5, { returned: 5 }, [0, 0]],
    [14, {}, [0, 4]],
    [20, {}, [6, 4]],
  ])('in the grace time %d corrects the month that has ended', async (actual, first, used) => {
    const grace = { keepEnded: true, grace: '1h', durable: true } as const
    const sources = sourcesOf(TEN['calendar month'], Ratelimit.balance(), grace)
    await sources.quotas[1].grant('org', 100)
    sources.clock.ms = JANUARY.end - 1
    await Ratelimit.spend(sources.mine, { rate: 14, ...NAMED })
    sources.clock.ms = JANUARY.end + 1
    const settled = await Ratelimit.settleSpent(sources.theirs, 'job', actual)
    if (actual <= 14) expect(settled.results[0]).toMatchObject(first)
    expect(settled.granted.reduce((sum, each) => sum + each, 0)).toBe(actual)
    expect(await sources.used()).toEqual(used)
  })

  test('keys and names are hashed with hashKeys', async () => {
    const sources = await monthAndCredits({ hashKeys: true })
    await Ratelimit.spend(sources.mine, { rate: 14, ...NAMED })
    const rows = await database.rows(
      `select key from rate_limit_ephemeral where prefix like 'drizzle-ratelimit/reserved/${sources.prefix}%'`,
    )
    expect(rows).toHaveLength(2)
    expect(rows.filter(({ key }) => String(key).includes('org'))).toEqual([])
    expect(await Ratelimit.settleSpent(sources.theirs, 'job', 3)).toMatchObject({ granted: [3, 0] })
  })

  test('it is one statement, to settle is another one, and a look first in another process', async () => {
    const { db, statements } = watch(database.db)
    const sources = await monthAndCredits({ db, preparedStatements: false })
    await sources.quotas[0].limit('org', { rate: 1 })
    statements.length = 0
    await Ratelimit.spend(sources.mine, { rate: 14, ...NAMED })
    expect(statements).toHaveLength(1)
    statements.length = 0
    await Ratelimit.settleSpent(sources.mine, 'job', 3)
    expect(statements).toHaveLength(1)
    await Ratelimit.spend(sources.mine, { rate: 4, id: 'other', expires: '1h' })
    statements.length = 0
    await Ratelimit.settleSpent(sources.theirs, 'other', 3)
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
            Ratelimit.spend(named.mine, { rate, ...NAMED }),
            Ratelimit.spend(plain.mine, { rate }),
          ])
          expect(one.granted).toEqual(other.granted)
          if (!one.success || !other.success) throw new Error('denied')
          for (const { clock } of [named, plain]) clock.advance(later)
          const byName = await Ratelimit.settleSpent(named[whose], 'job', actual, { debt })
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
    const sources = sourcesOf(TEN['fixed window'], Ratelimit.balance(), { db })
    const [{ ratelimit }] = sources.mine
    const untyped = Ratelimit.spend as (requests: unknown, options: unknown) => Promise<unknown>
    const wrong = [
      untyped(sources.mine, { rate: 4, id: 'job' }),
      untyped(sources.mine, { rate: 4, expires: '1h' }),
      untyped(sources.mine, { rate: 4, ...NAMED, id: '' }),
      untyped(sources.mine, { rate: 4, ...NAMED, once: { id: 'a', for: '1h' } }),
      untyped([...sources.mine, { ratelimit, key: 'org' }], { rate: 4, ...NAMED }),
      Ratelimit.settleSpent(sources.mine, '', 4),
      Ratelimit.settleSpent(sources.mine, 'job', -1),
      Ratelimit.settleSpent(sources.mine, 'job', 4, { debt: 'middle' as 'last' }),
      Ratelimit.settleSpent(sources.mine, 'job', 4, { dept: 'last' } as object),
      Ratelimit.settleSpent([], 'job', 4),
    ]
    for (const call of wrong) {
      await expect(call).rejects.toMatchObject({
        code: expect.stringMatching(/^INVALID_(OPTION|RATE|DURATION)$/),
      })
    }
    expect(statements).toEqual([])
  })
})

describe('reserveAll', () => {
  test('after a denial, a settlement knows nothing of the estimates that were not charged', async () => {
    const { mine, theirs, used } = sourcesOf(TEN['calendar month'], Ratelimit.balance())
    const [month, credits] = mine
    const denied = await Ratelimit.reserveAll(
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
    expect(await Ratelimit.reserveAll(requests, NAMED)).toMatchObject({ success: true })
    expect(await sources.used()).toEqual([4, 30])
    const again = await Ratelimit.reserveAll(requests, NAMED)
    expect(again).toMatchObject({ success: true, repeated: true })
    expect(await sources.used()).toEqual([4, 30])
    expect(await Ratelimit.settleAll(sources.theirs, 'job', [6, 20])).toMatchObject([{}, { returned: 10 }])
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
    await Ratelimit.reserveAll(requests, NAMED)
    const name = { key: 'org', id: 'job' }
    const undone = database.db.transaction(async (tx) => {
      await Ratelimit.settleAll(sources.theirs, 'job', [0, 0], { tx })
      throw UNDO
    })
    await expect(undone).rejects.toBe(UNDO)
    await database.db.transaction(async (tx) => {
      await month.settle(name, 1, { tx })
      await credits.settle(name, 2, { tx })
    })
    expect(await sources.used()).toEqual([1, 2])
    expect(await Ratelimit.settleAll(sources.theirs, 'job', [1, 2])).toMatchObject([
      { repeated: true },
      { repeated: true },
    ])
  })

  test('one that was settled alone keeps the others open', async () => {
    const sources = await monthAndCredits()
    await Ratelimit.reserveAll(
      sources.mine.map((request) => ({ ...request, rate: 4 })),
      NAMED,
    )
    await sources.quotas[0].settle({ key: 'org', id: 'job' }, 1)
    const late = Ratelimit.settleAll(sources.theirs, 'job', [1, 2])
    await expect(late).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await sources.used()).toEqual([1, 4])
    expect(await sources.quotas[1].settle({ key: 'org', id: 'job' }, 2)).toMatchObject({ returned: 2 })
  })

  test('a plan of its own is needed to settle by the name, and commit knows it', async () => {
    const limiter = calendarWindow(1000, 'month')
    const sources = await monthAndCredits()
    const [month, credits] = sources.mine
    const requests = [{ ...month, rate: 4, limiter }, credits]
    const reserved = await Ratelimit.reserveAll(requests, NAMED)
    const without = Ratelimit.settleAll(sources.theirs, 'job', [1, 1])
    await expect(without).rejects.toMatchObject({ code: 'OTHER_PLAN' })
    if (!reserved.success) throw new Error('denied')
    expect(await reserved.commit([5, 0])).toMatchObject([{ limit: 1000 }, { returned: 1 }])
    expect(await sources.used()).toEqual([5, 0])
  })

  test('two requests for one row have no name', async () => {
    const sources = await monthAndCredits()
    const [month] = sources.mine
    const twice = Ratelimit.reserveAll([month, month], NAMED)
    await expect(twice).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    for (const settling of [
      Ratelimit.settleAll([month, month], 'job', [1, 1]),
      Ratelimit.settleSpent([month, month], 'job', 1),
    ]) {
      await expect(settling).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    }
    const wrong = Ratelimit.settleAll(sources.theirs, 'job', [1])
    await expect(wrong).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await sources.used()).toEqual([0, 0])
  })
})
