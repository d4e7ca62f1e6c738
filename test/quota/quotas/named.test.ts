import { ledger } from 'drizzle-ratelimit/ledger'
import { block, blocks, unblock } from 'drizzle-ratelimit/lockout'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { type Limiter, Ratelimit, type Reservation, rateLimitTables } from '../../../src/index.ts'
import {
  closePeriods,
  Quota,
  type QuotaConfig,
  reserveAll,
  settle,
  settleExpired,
} from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { uncounted } from '../../support/limits.ts'
import { runs } from '../../support/runs.ts'
import {
  HOUR_MS,
  JANUARY,
  kinds,
  oneOfEachKind,
  type QuotaUnderTest,
  quotaOn,
  TEN,
  UNDO,
} from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

// Reservations with a name. What settling does to a limit is tested in reserve.test.ts; here it has to do the
// same, once.

const database = useDatabase()
const NAME = { key: 'key', id: 'job' }
const NAMED = { id: 'job', expires: '10m' } as const

interface Processes extends QuotaUnderTest {
  /** Shares nothing with `quota` but the configuration and the tables. */
  readonly other: Quota
}

function processes(limiter: Limiter, options: Partial<QuotaConfig> = {}): Processes {
  const one = quotaOn(database, limiter, options)
  return { ...one, other: new Quota(one.config) }
}

test('an estimate of a transaction that was rolled back is not settled from memory', async () => {
  const { quota, other } = processes(TEN['calendar month'])
  await undone(database.db, async (tx) => {
    await quota.reserve('key', { rate: 5, id: 'job', expires: '1d', tx })
  })
  await other.reserve('key', { rate: 8, ...NAMED })
  expect(await quota.settle(NAME, 3)).toMatchObject({ returned: 5, remaining: 7 })
})

test('what was used of a bucket before is remembered with its fraction, for thresholds', async () => {
  const reaching = { used: 8 }
  const { quota, other } = processes(TEN['interval bucket'], { thresholds: [{ used: 7.5 }, reaching] })
  expect(await quota.limit('key', { rate: 7.9 })).toMatchObject({ crossed: [{ used: 7.5 }] })
  await quota.reserve('key', { rate: 2, ...NAMED })
  expect(await other.settle(NAME, 0.1)).toMatchObject({ crossed: [reaching] })
})

describe.each(kinds)('$name', ({ limiter, of, takesFractions }) => {
  test.each([0, 1, 4, 9, 13])('another process settles it once, with %d', async (actual) => {
    const { quota, other } = processes(limiter)
    expect(await quota.reserve('key', { rate: 4, ...NAMED })).toMatchObject({ success: true, remaining: 6 })
    const remaining = Math.max(10 - actual, 0)
    const settled = await other.settle(NAME, actual)
    expect(settled).toMatchObject({ success: true, limit: 10, remaining, retryAfter: 0 })
    expect(settled).not.toHaveProperty('repeated')
    expect(await quota.getRemaining('key')).toMatchObject({ used: actual, remaining })
    expect(await quota.settle(NAME, actual)).toMatchObject({ success: true, remaining, repeated: true })
    expect(await quota.getRemaining('key')).toMatchObject({ used: actual, remaining })
    await expect(quota.settle(NAME, actual + 1)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  })

  test('the same name again charges nothing, open or settled, and settles the first one', async () => {
    const { quota, other } = processes(limiter)
    await quota.reserve('key', { rate: 4, ...NAMED })
    const again = await other.reserve('key', { rate: 5, ...NAMED })
    expect(again).toMatchObject({ success: true, repeated: true, remaining: 6 })
    await allowed(again).commit(2)
    expect(await other.reserve('key', { rate: 5, ...NAMED })).toMatchObject({ repeated: true, remaining: 8 })
    expect(await allowed(again).commit(2)).toMatchObject({ repeated: true, remaining: 8 })
    // Other keys have names of their own.
    expect(await other.reserve('other', { rate: 5, ...NAMED })).not.toHaveProperty('repeated')
  })

  test('a denial does not use up the name', async () => {
    const { quota, rows } = processes(limiter)
    await quota.limit('key', { rate: 8 })
    const before = await rows()
    expect(await quota.reserve('key', { rate: 4, ...NAMED })).toMatchObject({ success: false, remaining: 2 })
    expect(await rows()).toEqual(before)
    await expect(quota.settle(NAME, 0)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
    expect(await quota.reserve('key', { rate: 2, ...NAMED })).toMatchObject({ success: true, remaining: 0 })
  })

  test('a rollback of the reservation ends it, and one of its settling opens it again', async () => {
    const { quota, other } = processes(limiter)
    const undone = (work: (tx: Parameters<Parameters<typeof database.db.transaction>[0]>[0]) => unknown) =>
      expect(
        database.db.transaction(async (tx) => {
          await work(tx)
          throw UNDO
        }),
      ).rejects.toBe(UNDO)
    await undone(async (tx) => {
      await quota.reserve('key', { rate: 4, ...NAMED, tx })
      await quota.settle(NAME, 3, { tx })
    })
    await expect(quota.settle(NAME, 0)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
    const reserved = allowed(await quota.reserve('key', { rate: 4, ...NAMED }))
    await undone(async (tx) => {
      expect(await other.settle(NAME, 9, { tx })).not.toHaveProperty('repeated')
      expect(await other.settle(NAME, 9, { tx })).toHaveProperty('repeated')
      expect(await quota.getRemaining('key', { tx })).toMatchObject({ used: 9 })
    })
    await undone((tx) => reserved.commit(8, { tx }))
    expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
    await database.db.transaction((tx) => reserved.commit(7, { tx }))
    expect(await quota.getRemaining('key')).toMatchObject({ used: 7 })
  })

  test('a partly granted estimate gives back its rest', async () => {
    const { quota, other } = processes(limiter)
    await quota.limit('key', { rate: 7 })
    const part = await quota.reserve('key', { rate: 6, atLeast: 2, ...NAMED })
    expect(part).toMatchObject({ granted: 3, remaining: 0 })
    await other.settle(NAME, 1)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 8 })
  })

  test('it stays open after its end, and its name is remembered for a day', async () => {
    const { quota, clock } = processes(limiter)
    await quota.reserve('key', { rate: 4, ...NAMED })
    clock.advance(40 * 24 * HOUR_MS)
    await quota.cleanup()
    expect(await quota.reserve('key', { rate: 4, ...NAMED })).toMatchObject({ repeated: true })
    await quota.settle(NAME, 4)
    clock.advance(24 * HOUR_MS - 1)
    await quota.cleanup()
    expect(await quota.reserve('key', { rate: 4, ...NAMED })).toMatchObject({ repeated: true })
    clock.advance(1)
    expect(await quota.reserve('key', { rate: 4, ...NAMED })).not.toHaveProperty('repeated')
    expect(await quota.settle(NAME, 3)).not.toHaveProperty('repeated')
    clock.advance(25 * HOUR_MS)
    await quota.cleanup()
    await expect(quota.settle(NAME, 3)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
  })

  test('a plan of its own is needed to settle it, unless the reservation does', async () => {
    const { quota, other } = processes(Ratelimit.fixedWindow(1, '1h'))
    const larger = of(100, '1h').limiter
    await quota.reserve('key', { rate: 4, limiter, ...NAMED })
    await expect(other.settle(NAME, 1)).rejects.toMatchObject({ code: 'OTHER_PLAN' })
    const { used } = await quota.getRemaining('key', { limiter: larger })
    await other.settle(NAME, 1, { limiter: larger })
    expect(await quota.getRemaining('key', { limiter: larger })).toMatchObject({ used: used - 3 })
    const again = await quota.reserve('key', { rate: 4, limiter, id: 'other', expires: '1h' })
    expect(await allowed(again).release()).toMatchObject({ returned: 4 })
  })

  test('fractions and large numbers come back as they were', async () => {
    const [limit, rate] = takesFractions ? [10, 2.3] : [2 ** 53 - 1, 2 ** 52]
    const { quota, other } = processes(of(limit, '1h').limiter)
    await quota.reserve('key', { rate, ...NAMED })
    expect(await other.settle(NAME, 0)).toMatchObject({ returned: rate })
    expect(await other.settle(NAME, 0)).toMatchObject({ repeated: true })
  })

  type Step =
    | { readonly op: 'limit'; readonly rate: number; readonly force: boolean; readonly plan: number }
    | { readonly op: 'reserve'; readonly rate: number; readonly plan: number; readonly isPart: boolean }
    | { readonly op: 'settle'; readonly which: number; readonly actual: number; readonly plan: number }
    | { readonly op: 'wait'; readonly hours: number }

  const plan = fc.constantFrom(0, 0, 1, 2, 3)
  const anyStep: fc.Arbitrary<Step> = fc.oneof(
    fc.record({
      op: fc.constant('limit' as const),
      rate: fc.integer({ min: -3, max: 5 }),
      force: fc.boolean(),
      plan,
    }),
    fc.record({
      op: fc.constant('reserve' as const),
      rate: fc.integer({ min: 1, max: 8 }),
      isPart: fc.boolean(),
      plan,
    }),
    fc.record({
      op: fc.constant('settle' as const),
      which: fc.nat(),
      actual: fc.integer({ min: 0, max: 12 }),
      plan,
    }),
    fc.record({ op: fc.constant('wait' as const), hours: fc.constantFrom(0.5, 3, 10, 800) }),
  )

  test('settling by the name does what commit does, whatever else happens', async () => {
    const steps = fc.array(anyStep, { minLength: 4, maxLength: 12, size: 'max' })
    const both = async (sequence: readonly Step[], dryRun: boolean) => {
      // Shares are those of the plan that settles, because the row of an estimate has no room for its limit.
      const options = { thresholds: [3, 5, 8, 10, 12].map((used) => ({ used })), dryRun }
      const named = processes(limiter, options)
      const plain = quotaOn(database, limiter, { ...options, clock: named.clock.now })
      const plans = [undefined, of(10, '1h').limiter, of(25, '1h').limiter, Ratelimit.unlimited()]
      const open: { id: string; reservation: Reservation; hasPlan: boolean }[] = []
      for (const [place, step] of sequence.entries()) {
        if (step.op === 'wait') {
          named.clock.advance(step.hours * HOUR_MS)
          continue
        }
        const limiter = plans[step.plan]
        if (step.op === 'limit') {
          const call = { rate: step.rate, force: step.force, limiter }
          expect(await named.quota.limit('key', call)).toEqual(await plain.quota.limit('key', call))
        } else if (step.op === 'reserve') {
          const { rate } = step
          const call = { rate, limiter, ...(step.isPart && rate > 1 ? { atLeast: 1 } : {}) }
          const id = `job ${place}`
          const one = await named.quota.reserve('key', { ...call, id, expires: '1h' })
          const two = await plain.quota.reserve('key', call)
          expect(JSON.stringify(one)).toEqual(JSON.stringify(two))
          if (one.success && two.success) open.push({ id, reservation: two, hasPlan: limiter !== undefined })
        } else {
          const [settled] = open.splice(step.which % Math.max(open.length, 1), 1)
          if (!settled) continue
          const by = { limiter: settled.hasPlan ? (limiter ?? named.config.limiter) : limiter }
          const committed = await settled.reservation.commit(step.actual, by)
          const name = { key: 'key', id: settled.id }
          // The process that has charged it knows the estimate, and the other one looks.
          const settler = step.which % 2 === 0 ? named.quota : named.other
          expect(await settler.settle(name, step.actual, by)).toEqual(committed)
          const again = await named.quota.settle(name, step.actual, by)
          expect(again).toMatchObject({ repeated: true })
        }
        const look = await plain.quota.getRemaining('key')
        expect(await named.quota.getRemaining('key')).toEqual(look)
        const rows = await Promise.all([named, plain].map((each) => each.rows()))
        const [one, two] = rows.map((all) => all.map(({ stored }) => ({ ...(stored as object), prefix: '' })))
        expect(one).toEqual(two)
      }
    }
    await fc.assert(fc.asyncProperty(steps, fc.boolean(), both), runs(10))
  })
})

test('no limit: the estimate is kept, and what was not charged is not given back', async () => {
  const { quota, other } = processes(TEN['fixed window'])
  const limiter = Ratelimit.unlimited()
  for (const [id, by, actual, used] of [
    ['to unlimited', { limiter }, 1, 0],
    ['back, less', { limiter: TEN['fixed window'] }, 1, 0],
    ['back, more', { limiter: TEN['fixed window'] }, 7, 3],
  ] as const) {
    await quota.reserve('key', { rate: 4, limiter, id, expires: '1h' })
    expect(await quota.reserve('key', { rate: 4, limiter, id, expires: '1h' })).toHaveProperty('repeated')
    expect(await other.settle({ key: 'key', id }, actual, by)).toMatchObject({ success: true })
    expect(await other.settle({ key: 'key', id }, actual, by)).toMatchObject({ repeated: true })
    expect(await quota.getRemaining('key')).toMatchObject({ used })
  }
})

test.each(uncounted)('$name settles by the name', async ({ limiter }) => {
  const { quota, other } = processes(limiter)
  await quota.reserve('key', { rate: 4, ...NAMED })
  expect(await other.settle(NAME, 5)).toMatchObject({ success: true })
  expect(await other.settle(NAME, 5)).toMatchObject({ repeated: true })
})

test('credits: three releases of one name give back once', async () => {
  const { credits, config } = creditsOn(database)
  await credits.grant('key', 500)
  await credits.reserve('key', { rate: 100, ...NAMED })
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 400 })
  for (const each of [credits, new Credits(config), credits]) await each.settle(NAME, 0)
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 500 })
})

test('a window that has ended gets nothing back, and the next one pays the rest', async () => {
  const { clock, quota, other, rows } = processes(TEN['calendar month'])
  for (const id of ['less', 'more']) await quota.reserve('key', { rate: 4, id, expires: '1d' })
  clock.ms = JANUARY.end
  await quota.limit('key', { rate: 3 })
  const before = await rows()
  expect(await other.settle({ key: 'key', id: 'less' }, 1)).toMatchObject({ remaining: 7, returned: 0 })
  expect(await rows()).toEqual(before)
  expect(await other.settle({ key: 'key', id: 'more' }, 6)).toMatchObject({ remaining: 5 })
})

test('in the last millisecond of a month the month that paid gets the rest back', async () => {
  const { clock, quota, other } = processes(TEN['calendar month'])
  clock.ms = JANUARY.end - 1
  await quota.reserve('key', { rate: 4, ...NAMED })
  expect(await other.settle(NAME, 1)).toMatchObject({ remaining: 9, returned: 3 })
  clock.ms = JANUARY.end
  expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
})

test('after a reset it is settled, and the new window keeps what it has counted', async () => {
  const { clock, quota, other } = processes(TEN['fixed window'])
  await quota.reserve('key', { rate: 4, ...NAMED })
  await quota.resetUsedTokens('key')
  clock.advance(1)
  await quota.limit('key', { rate: 3 })
  expect(await other.settle(NAME, 1)).toMatchObject({ returned: 0, remaining: 7 })
})

test('after a change of plan it needs the present plan, and stays open without it', async () => {
  const [day, month] = [calendarWindow(10, 'day'), calendarWindow(1000, 'month')]
  const { quota, other } = processes(day, { durable: true, keepEnded: true, cleanupProbability: 0 })
  await quota.reserve('key', { rate: 4, ...NAMED })
  expect(await quota.changePlan('key', { from: day, to: month })).toMatchObject({ used: 4, reserved: 4 })
  await quota.limit('key', { rate: 100, limiter: month })
  await expect(other.settle(NAME, 6)).rejects.toMatchObject({ code: 'OTHER_PLAN' })
  expect(await other.settle(NAME, 6, { limiter: month })).toMatchObject({ remaining: 898 })
  expect(await other.settle(NAME, 6, { limiter: month })).toMatchObject({ repeated: true, remaining: 898 })
})

test('within the grace time it corrects the period that has ended, once', async () => {
  const grace = { keepEnded: true, grace: '1h', durable: true, cleanupProbability: 0 } as const
  const { clock, quota, other } = processes(TEN['calendar month'], grace)
  for (const id of ['first', 'second']) await quota.reserve('key', { rate: 4, id, expires: '1d' })
  clock.ms = JANUARY.end + 1
  expect(await other.settle({ key: 'key', id: 'first' }, 1)).toMatchObject({ returned: 3 })
  const close = () => database.db.transaction((tx) => closePeriods(other, { tx }))
  expect(await close()).toMatchObject([{ used: 5, reserved: 4 }])
  await undone(database.db, async (tx) => {
    expect(await other.settle({ key: 'key', id: 'second' }, 6, { tx })).toMatchObject({
      correction: { used: 2 },
    })
  })
  expect(await other.settle({ key: 'key', id: 'second' }, 6)).toMatchObject({ correction: { used: 2 } })
  expect(await other.settle({ key: 'key', id: 'second' }, 6)).toMatchObject({ repeated: true })
  clock.advance(2 * HOUR_MS)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
})

const DAY_MS = 24 * HOUR_MS
const [FIXED, SMALL_DAY] = [Ratelimit.fixedWindow(10, '1d'), calendarWindow(10, 'day')]

// The grace time may be longer than the period: then the period is not the one before the running one.
test.each<[string, Limiter, Limiter, Limiter, number]>([
  ['a day', TEN['calendar month'], SMALL_DAY, SMALL_DAY, DAY_MS],
  ['a larger day', TEN['calendar month'], SMALL_DAY, calendarWindow(1000, 'day'), DAY_MS],
  [
    'a day that carries over',
    SMALL_DAY,
    calendarWindow(10, 'day', { rollover: { max: 5 } }),
    SMALL_DAY,
    DAY_MS,
  ],
  ['a fixed window', Ratelimit.fixedWindow(10, '1h'), FIXED, FIXED, DAY_MS],
])('with a limiter of its own it corrects its own period while the grace lasts: %s', async (...each) => {
  const [, own, charged, present, lengthMs] = each
  const grace = { keepEnded: true, grace: '3d', durable: true, cleanupProbability: 0 } as const
  const { clock, quota, other } = processes(own, grace)
  const start = Date.UTC(2026, 0, 5)
  const end = start + lengthMs
  clock.ms = start
  for (const id of ['in time', 'too late', 'by time']) {
    allowed(await quota.reserve('key', { rate: 3, id, expires: '1h', limiter: charged }))
  }
  clock.ms = end
  const limiterOf = () => charged
  const closed = await database.db.transaction((tx) => closePeriods(quota, { tx, limiterOf }))
  expect(closed).toMatchObject([{ key: 'key', start, end, used: 9 }])
  clock.ms = end + 3 * DAY_MS - 1
  const plan = { limiter: present }
  const settled = await other.settle({ key: 'key', id: 'in time' }, 1, plan)
  expect(settled).toMatchObject({ correction: { start, end, used: -2 } })
  clock.ms = end + 3 * DAY_MS
  const late = await other.settle({ key: 'key', id: 'too late' }, 1, plan)
  expect(late).not.toHaveProperty('correction')
  expect(late).toMatchObject({ returned: 0 })
  const ended = await database.db.transaction((tx) =>
    settleExpired(other, { tx, as: 'release', limiterOf: () => present }),
  )
  expect(ended).toMatchObject([{ id: 'by time', returned: 0 }])
  expect(ended[0]).not.toHaveProperty('correction')
})

test('a refused settlement in a transaction leaves it open, with grace too', async () => {
  const grace = { keepEnded: true, grace: '1h', durable: true, cleanupProbability: 0 } as const
  const { quota, other } = processes(calendarWindow(10, 'day'), grace)
  await quota.reserve('key', { rate: 4, ...NAMED })
  await quota.changePlan('key', { to: calendarWindow(1000, 'month') })
  await quota.limit('key', { limiter: calendarWindow(1000, 'month') })
  await database.db.transaction(async (tx) => {
    await expect(other.settle(NAME, 6, { tx })).rejects.toMatchObject({ code: 'OTHER_PLAN' })
  })
  expect(await other.settle(NAME, 6, { limiter: calendarWindow(1000, 'month') })).not.toHaveProperty(
    'repeated',
  )
})

test('to reserve is one statement, to settle another one, and a look first in another process', async () => {
  const { db, statements } = watch(database.db)
  const { quota, other } = processes(TEN['fixed window'], { db })
  await quota.limit('key')
  const counted = async (work: () => Promise<unknown>) => {
    statements.length = 0
    await work()
    return statements.length
  }
  expect(await counted(() => quota.reserve('key', NAMED))).toBe(1)
  expect(await counted(() => quota.reserve('key', NAMED))).toBe(1)
  expect(await counted(() => quota.settle(NAME, 1))).toBe(1)
  // A look at the estimate, and one at the limit.
  expect(await counted(() => quota.settle(NAME, 1))).toBe(2)
  await quota.reserve('key', { id: 'another', expires: '1h' })
  expect(await counted(() => other.settle({ key: 'key', id: 'another' }, 1))).toBe(2)
  const joined = await counted(() =>
    db.transaction((tx) => quota.reserve('key', { id: 'other', expires: '1h', tx })),
  )
  expect(joined).toBe(1)
  // It may have been rolled back, so it is looked at.
  expect(await counted(() => quota.settle({ key: 'key', id: 'other' }, 1))).toBe(2)
})

test('a reservation that another process has settled is looked at', async () => {
  const { quota, other } = processes(TEN['fixed window'])
  for (const id of ['same', 'another']) await quota.reserve('key', { rate: 4, id, expires: '1h' })
  for (const id of ['same', 'another']) await other.settle({ key: 'key', id }, 1)
  expect(await quota.settle({ key: 'key', id: 'same' }, 1)).toMatchObject({ repeated: true, remaining: 8 })
  const another = quota.settle({ key: 'key', id: 'another' }, 2)
  await expect(another).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 2 })
})

test.each([
  ['a longer window', Ratelimit.fixedWindow(100, '1d')],
  ['another algorithm', Ratelimit.slidingWindow(100, '1h')],
])('a reservation that another process has settled under %s is repeated', async (_, limiter) => {
  const { quota, other, config } = processes(Ratelimit.fixedWindow(10, '1h'))
  const reservation = allowed(await quota.reserve('key', { rate: 5, ...NAMED }))
  expect(await other.settle(NAME, 7, { limiter })).toMatchObject({ success: true })
  expect(await reservation.commit(7)).toMatchObject({ success: true, repeated: true })
  await quota.reserve('own', { rate: 5, limiter, ...NAMED })
  await other.settle({ key: 'own', id: 'job' }, 3, { limiter })
  expect(await quota.settle({ key: 'own', id: 'job' }, 3)).toMatchObject({ repeated: true })
  const beside = new Quota({ ...config, prefix: `${config.prefix} beside` })
  const requests = [quota, beside].map((ratelimit) => ({ ratelimit, key: 'two' }))
  const listed = await reserveAll(requests, NAMED)
  const present = [
    { ratelimit: other, key: 'two', limiter },
    { ratelimit: beside, key: 'two' },
  ]
  await settle(present, 'job', { actual: [7, 0] })
  if (!listed.success) throw new Error('denied')
  expect(await listed.commit([7, 0])).toMatchObject([{ repeated: true }, { repeated: true }])
})

test('a reservation whose rows are lost is looked at, and makes no row', async () => {
  const { quota, prefix } = processes(TEN['fixed window'])
  await quota.reserve('key', { rate: 4, ...NAMED })
  await database.script(`delete from rate_limit_ephemeral where strpos(prefix, '${prefix}') > 0`)
  await expect(quota.settle(NAME, 1)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
  const left = `select * from rate_limit_ephemeral where strpos(prefix, $1) > 0`
  expect(await database.rows(left, [prefix])).toEqual([])
})

test('keys and ids are hashed with hashKeys', async () => {
  const { quota, other, prefix } = processes(TEN['fixed window'], { hashKeys: true })
  await quota.reserve('ada@example.com', { rate: 4, id: 'ada@example.com', expires: '1h' })
  expect(await other.settle({ key: 'ada@example.com', id: 'ada@example.com' }, 1)).toMatchObject({
    remaining: 9,
  })
  const stored = JSON.stringify(
    await database.rows(`select * from rate_limit_ephemeral where strpos(prefix, $1) > 0`, [prefix]),
  )
  expect(stored).not.toContain('ada')
  expect(stored).not.toContain(Buffer.from('ada').toString('hex'))
})

test('entries have the name as their id', async () => {
  const entries: unknown[] = []
  const write = async (_tx: unknown, some: readonly unknown[]) => void entries.push(...some)
  const { quota } = processes(TEN['fixed window'], { use: [ledger(write)] })
  await quota.reserve('key', { rate: 4, ...NAMED })
  await quota.settle(NAME, 1)
  await quota.settle(NAME, 1)
  expect(entries).toMatchObject([
    { kind: 'reserve', key: 'key', units: 4, id: 'job' },
    { kind: 'settle', key: 'key', units: -3, id: 'job' },
  ])
})

test('a blocked key reserves nothing', async () => {
  const { quota } = processes(TEN['fixed window'], { use: [blocks()] })
  await block(quota, 'key', '1h')
  expect(await quota.reserve('key', { rate: 4, ...NAMED })).toMatchObject({ success: false })
  await unblock(quota, 'key')
  expect(await quota.reserve('key', { rate: 4, ...NAMED })).toMatchObject({ success: true, remaining: 6 })
})

test('an outage throws, because a reservation that was not stored could not be settled', async () => {
  const { db } = watch(database.db, () => {
    throw new Error('connect ECONNREFUSED')
  })
  const { quota } = processes(TEN['fixed window'], { db, onError: 'allow' })
  expect(await quota.limit('key')).toMatchObject({ success: true, degraded: true })
  await expect(quota.reserve('key', NAMED)).rejects.toThrow()
  await expect(quota.settle(NAME, 1)).rejects.toThrow()
})

test('what is refused before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const { quota } = processes(TEN['fixed window'], { db })
  const refused = async (call: Promise<unknown>, code: string) =>
    expect(call).rejects.toMatchObject({ name: 'RatelimitError', code })
  const anything = (options: unknown) => quota.reserve('key', options as typeof NAMED)
  await refused(anything({ ...NAMED, rate: -1 }), 'INVALID_RATE')
  await refused(anything({ id: 'job' }), 'INVALID_DURATION')
  await refused(anything({ expires: '1h' }), 'INVALID_OPTION')
  await refused(anything({ ...NAMED, once: { id: 'job', for: '1d' } }), 'INVALID_OPTION')
  for (const id of ['', 7, null, '\ud800', 'x'.repeat(600)])
    await refused(anything({ ...NAMED, id }), 'INVALID_OPTION')
  const settle = (name: unknown, actual: unknown = 1) => quota.settle(name as typeof NAME, actual as number)
  await refused(settle({ key: '', id: 'job' }), 'INVALID_KEY')
  await refused(settle({ id: 'job' }), 'INVALID_OPTION')
  await refused(settle({ key: 'key' }), 'INVALID_OPTION')
  await refused(settle(null), 'INVALID_OPTION')
  await refused(settle({ ...NAME, ids: 'x' }), 'INVALID_OPTION')
  await refused(settle(NAME, -1), 'INVALID_RATE')
  await refused(settle(NAME, 0.5), 'INVALID_RATE')
  expect(statements).toEqual([])
})

test('a table of your own has its reservations too', async () => {
  const tables = rateLimitTables({ ephemeral: 'own_ephemeral', durable: 'own_durable' })
  const { quota } = processes(TEN['fixed window'], { tables, autoMigrate: true })
  await quota.reserve('key', { rate: 4, ...NAMED })
  expect(await quota.settle(NAME, 1)).toMatchObject({ remaining: 9 })
})

test('one of each kind goes on counting while reservations of many keys share statements', async () => {
  for (const { limiter } of oneOfEachKind) {
    const { quota, other } = processes(limiter)
    const keys = Array.from({ length: 12 }, (_, i) => `key ${i}`)
    const name = (key: string, i: number) => ({ key, id: `job ${i}` })
    for (const round of [1, 2, 3]) {
      await Promise.all(keys.map((key) => quota.reserve(key, { rate: 3, id: `job ${round}`, expires: '1h' })))
      await Promise.all(keys.map((key) => other.settle(name(key, round), 1)))
    }
    for (const key of keys) expect(await quota.getRemaining(key)).toMatchObject({ used: 3 })
  }
})
