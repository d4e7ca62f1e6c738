import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, limitAll, Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { uncounted } from '../../support/limits.ts'
import { Model } from '../../support/model.ts'
import { HOUR_MS, JANUARY, kinds, oneOfEachKind, quotaOn, TEN } from '../../support/ten.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

/** What a customer has: plans of one algorithm read each other's rows. */
interface CustomerPlan {
  readonly name: string
  readonly algorithm: string
  readonly limiter: Limiter
  /** Undefined where nothing is counted. */
  readonly unblocked?: Limiter
}

// A window of nothing blocks. A bucket of nothing is refused.
const blocked = oneOfEachKind.flatMap(({ name, algorithm, limiter, of, mayBeEmpty }) =>
  mayBeEmpty
    ? [{ name: `blocked ${name}`, algorithm, limiter: of(0, '1h').limiter, unblocked: limiter }]
    : [],
)
const plans: readonly CustomerPlan[] = [
  ...oneOfEachKind.map((kind) => ({ ...kind, unblocked: kind.limiter })),
  ...blocked,
  ...uncounted,
]

const DAY_MS = 24 * HOUR_MS

/** Every change from one plan to another, and what of three that were taken counts after it. */
const changes = plans.flatMap((from) =>
  plans
    .filter((to) => to !== from)
    .map((to) => {
      const taken = from.limiter.params.limit > 0 && from.unblocked ? 3 : 0
      const used = to.algorithm === from.algorithm ? taken : 0
      const left = Math.max(to.limiter.params.limit - used, 0)
      return { from, to, change: `${from.name}, then ${to.name}`, taken, used, left }
    }),
)
const granting = changes.filter(({ to }) => to.limiter.params.limit > 0)
const denying = changes.filter(({ to }) => to.limiter.params.limit === 0)

/** A key that has taken three under a plan. */
async function charged(from: CustomerPlan) {
  const { db, statements } = watch(database.db)
  const set = quotaOn(database, from.limiter, { db })
  const { success } = await set.quota.limit('key', { rate: 3 })
  expect(success).toBe(from.limiter.params.limit > 0)
  const before = { rows: await set.rows(), look: await set.quota.getRemaining('key') }
  statements.length = 0
  /** That under the plan from before everything is as it was. */
  const expectUntouched = async () => {
    expect(await set.rows()).toEqual(before.rows)
    expect(await set.quota.getRemaining('key')).toEqual(before.look)
  }
  return { ...set, statements, expectUntouched }
}

describe('after a change of plan', () => {
  test.each(changes)('a look counts what is stored, $change', async ({ from, to, used, left }) => {
    const { quota, expectUntouched } = await charged(from)
    const { limiter } = to
    expect(await quota.getRemaining('key', { limiter })).toMatchObject({
      limit: limiter.params.limit,
      remaining: left,
      used,
    })
    expect(await quota.limit('key', { limiter, rate: 0 })).toMatchObject({ success: true, remaining: left })
    await expectUntouched()
  })

  test.each(changes.filter(({ from, to }) => from.algorithm !== to.algorithm))(
    'a row ahead of the clock does not move the time, $change',
    async ({ from, to }) => {
      const { quota, clock } = quotaOn(database, from.limiter)
      clock.advance(DAY_MS)
      await quota.limit('key')
      clock.advance(-DAY_MS)
      const { limiter } = to
      expect(await quota.limit('key', { limiter })).toEqual(await quota.limit('new key', { limiter }))
    },
  )

  test.each(granting)('a check takes from it, $change', async ({ from, to, used, left }) => {
    const { quota } = await charged(from)
    const { limiter } = to
    expect(await quota.limit('key', { limiter, rate: 2 })).toMatchObject({
      success: true,
      limit: limiter.params.limit,
      remaining: left - 2,
    })
    expect(await quota.getRemaining('key', { limiter })).toMatchObject({ used: to.unblocked ? used + 2 : 0 })
  })

  test.each(granting)(
    'a call that does not fit is denied and writes nothing, $change',
    async ({ from, to, left }) => {
      if (!to.unblocked) return
      const { quota, expectUntouched } = await charged(from)
      const { limiter } = to
      expect(await quota.limit('key', { limiter, rate: left + 1 })).toMatchObject({
        success: false,
        remaining: left,
      })
      await expectUntouched()
    },
  )

  test.each(granting)(
    'reserve takes from it and gives it back, $change',
    async ({ from, to, used, left }) => {
      const { quota } = await charged(from)
      const { limiter } = to
      const reserved = await quota.reserve('key', { limiter, rate: 4 })
      expect(reserved).toMatchObject({ success: true, remaining: left - 4 })
      if (reserved.success) expect(await reserved.release()).toMatchObject({ success: true, remaining: left })
      expect(await quota.getRemaining('key', { limiter })).toMatchObject({ used, remaining: left })
    },
  )

  test.each(granting)('limitAll takes from it, $change', async ({ from, to, left }) => {
    const { quota } = await charged(from)
    const { limiter } = to
    expect(await limitAll([{ ratelimit: quota, key: 'key', limiter, rate: 5 }])).toMatchObject({
      success: true,
      results: [{ limit: limiter.params.limit, remaining: left - 5 }],
    })
    expect(await quota.getRemaining('key', { limiter })).toMatchObject({ remaining: left - 5 })
  })

  test.each(granting)('blockUntilReady takes from it, $change', async ({ from, to, left }) => {
    const { quota } = await charged(from)
    const { limiter } = to
    expect(await quota.blockUntilReady('key', 0, { rate: 2, limiter })).toMatchObject({
      success: true,
      limit: limiter.params.limit,
      remaining: left - 2,
    })
  })

  test.each(changes)('a reset gives the whole of both, $change', async ({ from, to }) => {
    const { quota } = await charged(from)
    await quota.resetUsedTokens('key', { limiter: to.limiter })
    for (const { limiter } of [to, from]) {
      const { limit, remaining, used } = await quota.getRemaining('key', { limiter })
      expect({ remaining, used }).toEqual({ remaining: limit, used: 0 })
    }
  })

  test.each(granting)('a look counts the use of its own algorithm only, $change', async (change) => {
    const { from, to, used, taken } = change
    const { quota } = await charged(from)
    await quota.limit('key', { limiter: to.limiter, rate: 2 })
    if (!from.unblocked) return
    const writtenByTo = from.algorithm === to.algorithm ? used + 2 : 0
    expect(await quota.getRemaining('key')).toMatchObject({ used: to.unblocked ? writtenByTo : taken })
  })
})

describe('a row of another algorithm', () => {
  const pairs = oneOfEachKind.flatMap((from) =>
    oneOfEachKind
      .filter((to) => to !== from)
      .map((to) => ({ from, to, change: `${from.name}, then ${to.name}` })),
  )

  test.each(pairs)('is not counted, not even if its period goes on, $change', async ({ from, to }) => {
    const { clock, quota } = quotaOn(database, from.limiter)
    // All the periods have begun by now, the calendar's too, and none has ended.
    clock.ms = JANUARY.start + HOUR_MS
    await quota.limit('key', { rate: 3 })
    expect(await quota.getRemaining('key', { limiter: to.limiter })).toMatchObject({ used: 0, remaining: 10 })
    expect(await quota.limit('key', { limiter: to.limiter, rate: 10 })).toMatchObject({ success: true })
  })
})

describe('a blocked plan', () => {
  test.each(denying)('denies forever and keeps the stored row, $change', async ({ from, to }) => {
    const { quota, expectUntouched } = await charged(from)
    const { limiter } = to
    const denied = {
      success: false,
      limit: 0,
      remaining: 0,
      reset: Number.POSITIVE_INFINITY,
      retryAfter: Number.POSITIVE_INFINITY,
    }
    expect(await quota.limit('key', { limiter })).toEqual(denied)
    expect(await quota.reserve('key', { limiter })).toEqual(denied)
    expect((await limitAll([{ ratelimit: quota, key: 'key', limiter }])).results).toEqual([denied])
    expect(await quota.blockUntilReady('key', '1d', { limiter })).toEqual(denied)
    await expectUntouched()
  })

  test.each(blocked)('counts refunds, $name', async ({ limiter, unblocked }) => {
    const { quota } = quotaOn(database, unblocked)
    await quota.limit('key', { rate: 7 })
    expect(await quota.limit('key', { rate: -2, limiter })).toMatchObject({ success: true, remaining: 0 })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 5, remaining: 5 })
  })
})

test('the remembered denial of a blocked plan holds for that plan only', async () => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, Ratelimit.fixedWindow(0, '1d'), { db, inMemoryBlock: true })
  for (let i = 0; i < 3; i++) expect(await quota.limit('key')).toMatchObject({ success: false })
  expect(statements).toHaveLength(2)
  const limiter = Ratelimit.fixedWindow(5, '1d')
  expect(await quota.limit('key', { limiter })).toMatchObject({ success: true, remaining: 4 })
  expect(await quota.limit('key')).toMatchObject({ success: false, retryAfter: Number.POSITIVE_INFINITY })
})

describe('an unlimited plan', () => {
  const limiter = Ratelimit.unlimited()

  test.each(plans)('sends no statement, and leaves the stored row for the next plan, $name', async (from) => {
    const { clock, quota, statements, expectUntouched } = await charged(from)
    const limit = Number.POSITIVE_INFINITY
    const allowed = { success: true, limit, remaining: limit, reset: clock.ms, retryAfter: 0 }
    for (const rate of [1, 0, -3, 0.5, 1e9]) {
      const returned = rate < 0 ? { returned: 0 } : {}
      expect(await quota.limit('key', { limiter, rate })).toEqual({ ...allowed, ...returned })
    }
    expect(await quota.limit('key', { limiter, rate: 1e9, force: true })).toEqual(allowed)
    expect(await quota.blockUntilReady('key', 0, { limiter })).toEqual(allowed)
    const reserved = await quota.reserve('key', { limiter, rate: 50 })
    if (reserved.success) expect(await reserved.commit(70)).toEqual(allowed)
    expect((await limitAll([{ ratelimit: quota, key: 'key', limiter }])).results).toEqual([allowed])
    const look = { limit, remaining: limit, reset: clock.ms, used: 0 }
    expect(await quota.getRemaining('key', { limiter })).toEqual(look)
    await database.db.transaction(async (tx) => {
      const watched = watch(tx)
      expect(await quota.limit('key', { limiter, tx: watched.db })).toEqual(allowed)
      expect(watched.statements).toEqual([])
    })
    expect(statements).toEqual([])
    await expectUntouched()
  })

  test('needs no transaction in limitAll', async () => {
    const transaction = () => Promise.reject(new Error('away'))
    const { quota } = quotaOn(database, limiter, { db: { ...watch(database.db).db, transaction } })
    expect(await limitAll([{ ratelimit: quota, key: 'key' }])).toMatchObject({ success: true })
  })

  test('is allowed in limitAll with a limit that denies', async () => {
    const { quota } = quotaOn(database, limiter)
    const requests = [
      { ratelimit: quota, key: 'free' },
      { ratelimit: quota, key: 'blocked', limiter: Ratelimit.fixedWindow(0, '1d') },
    ]
    expect(await limitAll(requests)).toMatchObject({
      success: false,
      denied: [requests[1]],
      results: [{ success: true, retryAfter: 0 }, { success: false }],
      retryAfter: Number.POSITIVE_INFINITY,
    })
  })

  test('shares a key with a limit in limitAll, because it has no row', async () => {
    const { quota } = quotaOn(database, TEN['fixed window'])
    const requests = [{ limiter }, { rate: 3 }].map((own) => ({ ratelimit: quota, key: 'key', ...own }))
    expect(await limitAll(requests)).toMatchObject({ success: true, results: [{}, { remaining: 7 }] })
  })
})

describe('another limit of the same algorithm', () => {
  test.each(kinds)(
    'that is larger or smaller keeps the stored row, $name',
    async ({ limiter, of, keeps }) => {
      const { quota } = quotaOn(database, limiter)
      await quota.limit('key', { rate: 7 })
      const look = async (tokens: number) => {
        const { limit, remaining, used } = await quota.getRemaining('key', {
          limiter: of(tokens, '1h').limiter,
        })
        return [limit, remaining, used]
      }
      if (keeps === 'what is left') {
        expect(await look(100)).toEqual([100, 3, 97])
        expect(await look(5)).toEqual([5, 3, 2])
        expect(await look(2)).toEqual([2, 2, 0])
      } else {
        expect(await look(100)).toEqual([100, 93, 7])
        expect(await look(8)).toEqual([8, 1, 7])
        expect(await look(5)).toEqual([5, 0, 7])
      }
      expect(await look(10)).toEqual([10, 3, 7])
    },
  )

  test.each(kinds)('that is smaller denies until there is enough, $name', async ({ plan, limiter, of }) => {
    const { clock, quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 9 })
    const smallerPlan = of(4, '1h')
    const smaller = smallerPlan.limiter
    const denied = await quota.limit('key', { rate: 2, limiter: smaller })
    const model = new Model()
    model.limit(plan, clock.ms, 9)
    const { retryAfter } = model.limit(smallerPlan, clock.ms, 2)
    expect(retryAfter).toBeGreaterThan(0)
    expect(denied).toMatchObject({ success: false, limit: 4, retryAfter })
    clock.advance(retryAfter - 1)
    expect(await quota.limit('key', { rate: 2, limiter: smaller })).toMatchObject({
      success: false,
      retryAfter: 1,
    })
    clock.advance(1)
    expect(await quota.limit('key', { rate: 2, limiter: smaller })).toMatchObject({ success: true })
  })
})

describe('another length', () => {
  test.each([
    { name: 'fixed window', window: Ratelimit.fixedWindow },
    { name: 'sliding window', window: Ratelimit.slidingWindow },
  ])('of a $name is read from the old start', async ({ window }) => {
    const { clock, quota } = quotaOn(database, window(10, '1h'))
    const start = clock.ms
    await quota.limit('key', { rate: 6 })
    clock.advance(HOUR_MS / 2)
    const longer = window(10, '1d')
    expect(await quota.getRemaining('key', { limiter: longer })).toMatchObject({ used: 6, start })
    const shorter = window(10, '10m')
    expect(await quota.getRemaining('key', { limiter: shorter })).toMatchObject({ used: 0, start: clock.ms })
    clock.advance(HOUR_MS * 2)
    expect(await quota.limit('key', { limiter: longer })).toMatchObject({ success: true, remaining: 3 })
    expect(await quota.getRemaining('key', { limiter: longer })).toMatchObject({ start })
  })

  test('of a sliding window makes earlier use fade by the new length', async () => {
    const { clock, quota } = quotaOn(database, Ratelimit.slidingWindow(10, '1h'))
    await quota.limit('key', { rate: 8 })
    clock.advance(15 * 60_000)
    // Now in the window after it, of which half has passed.
    const limiter = Ratelimit.slidingWindow(10, '10m')
    const { used, start } = await quota.getRemaining('key', { limiter })
    expect({ used, start }).toEqual({ used: 4, start: clock.ms - 5 * 60_000 })
  })
})

describe('another calendar', () => {
  const month = calendarWindow(10, 'month')
  const day = calendarWindow(10, 'day')
  const berlin = calendarWindow(10, 'month', { timeZone: 'Europe/Berlin' })
  const kathmandu = calendarWindow(10, 'month', { timeZone: 'Asia/Kathmandu' })
  const at = (...time: [number, number, number]) => Date.UTC(2026, ...time)

  test.each([
    {
      change: 'a longer period keeps the count',
      from: day,
      to: month,
      now: at(0, 15, 9),
      used: 4,
      start: at(0, 1, 0),
    },
    {
      change: 'a shorter one that began with it too',
      from: month,
      to: day,
      now: at(0, 1, 9),
      used: 4,
      start: at(0, 1, 0),
    },
    {
      change: 'a shorter one that began later is new',
      from: month,
      to: day,
      now: at(0, 15, 9),
      used: 0,
      start: at(0, 15, 0),
    },
    {
      change: 'a zone whose month began earlier keeps it',
      from: month,
      to: kathmandu,
      now: at(0, 15, 9),
      used: 4,
      start: Date.UTC(2025, 11, 31, 18, 15),
    },
    {
      change: 'a zone whose month began later is new',
      from: kathmandu,
      to: month,
      now: at(0, 15, 9),
      used: 0,
      start: at(0, 1, 0),
    },
    {
      change: 'a zone whose month began an hour later keeps the start too, as other time zone data do',
      from: berlin,
      to: month,
      now: at(0, 15, 9),
      used: 4,
      start: Date.UTC(2025, 11, 31, 23),
    },
  ])('$change', async ({ from, to, now, used, start }) => {
    const { clock, quota } = quotaOn(database, from)
    clock.ms = now
    await quota.limit('key', { rate: 4 })
    const { start: from1, ...look } = await quota.getRemaining('key')
    expect(await quota.getRemaining('key', { limiter: to })).toMatchObject({
      used,
      remaining: 10 - used,
      start,
    })
    expect(await quota.getRemaining('key')).toEqual({ ...look, start: from1 })
    await quota.limit('key', { limiter: to, rate: 2 })
    expect(await quota.getRemaining('key', { limiter: to })).toMatchObject({ used: used + 2, start })
  })

  test('with an anchor in the middle of the month keeps what was taken since', async () => {
    const { clock, quota } = quotaOn(database, day)
    clock.ms = at(0, 20, 9)
    await quota.limit('key', { rate: 4 })
    const anchored = (dayOfMonth: number) =>
      calendarWindow(10, 'month', { anchor: new Date(at(0, dayOfMonth, 9)) })
    expect(await quota.getRemaining('key', { limiter: anchored(15) })).toMatchObject({
      used: 4,
      start: at(0, 15, 9),
    })
    // The day began before the subscription did.
    expect(await quota.getRemaining('key', { limiter: anchored(20) })).toMatchObject({
      used: 0,
      start: at(0, 20, 9),
    })
  })

  test('of the next period is new', async () => {
    const { clock, quota } = quotaOn(database, month)
    await quota.limit('key', { rate: 4 })
    clock.ms = JANUARY.end
    expect(await quota.getRemaining('key', { limiter: day })).toMatchObject({ used: 0, start: JANUARY.end })
  })
})
