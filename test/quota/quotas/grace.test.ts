import { type Entry, ledger } from 'drizzle-ratelimit/ledger'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Database, Ratelimit, type Reservation } from '../../../src/index.ts'
import { closePeriods, type QuotaConfig, reserveAll, spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { type QuotaUnderTest, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'

const database = useDatabase()
const HOUR_MS = 3_600_000
const END = Date.UTC(2026, 1, 1)
const KEEPING = { keepEnded: true, grace: '1h' } as const
const limiter = calendarWindow(100, 'month')

/** A quota in which an estimate of 40 was reserved an hour before the end of January, after 10 were used. */
async function reserved(options: Partial<QuotaConfig> = KEEPING) {
  const made = quotaOn(database, limiter, options)
  made.clock.ms = END - HOUR_MS
  await made.quota.limit('key', { rate: 10 })
  const reservation = allowed(await made.quota.reserve('key', { rate: 40 }))
  return { ...made, reservation }
}

function close({ quota }: Pick<QuotaUnderTest, 'quota'>, grace?: '1h') {
  return database.db.transaction((tx) => closePeriods(quota, { tx, ...(grace ? { grace } : {}) }))
}

test.each([
  { actual: 25, used: 35, returned: 15 },
  { actual: 40, used: 50, returned: undefined },
  { actual: 70, used: 80, returned: undefined },
  { actual: 0, used: 10, returned: 40 },
])('a late cost of $actual corrects the row, and charges nothing to the new period', async (each) => {
  const { clock, quota, reservation } = await reserved()
  clock.ms = END + HOUR_MS - 1
  const settled = await reservation.commit(each.actual)
  expect(settled).toMatchObject({ limit: 100, remaining: 100 })
  expect(settled.returned).toBe(each.returned)
  expect(settled).not.toHaveProperty('correction')
  expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
  expect(await close({ quota })).toMatchObject([{ key: 'key', end: END, used: each.used, reserved: 0 }])
})

/** The month of another row, and the credits next to it, an hour before the end of January. */
async function monthAndCredits() {
  const { quota, clock } = quotaOn(database, limiter, KEEPING)
  const { credits } = creditsOn(database, { clock: clock.now })
  await credits.grant('key', 100)
  clock.ms = END - HOUR_MS
  const requests = [quota, credits].map((ratelimit) => ({ ratelimit, key: 'key', rate: 40 }))
  const used = async () => (await credits.getRemaining('key')).used
  return { clock, quota, requests, used }
}

test.each([
  { costs: [25, 50], used: 25, more: 50 },
  { costs: [70, 0], used: 70, more: 0 },
])('late costs $costs of reserveAll correct the row of the month that has ended', async (each) => {
  const { clock, quota, requests, used } = await monthAndCredits()
  const reservation = allowed(await reserveAll(requests))
  clock.ms = END + HOUR_MS - 1
  expect(await reservation.commit(each.costs)).toMatchObject([{ remaining: 100 }, { success: true }])
  expect(await used()).toBe(each.more)
  expect(await close({ quota })).toMatchObject([{ used: each.used, reserved: 0 }])
})

test.each([
  { actual: 90, granted: [90, 0], used: 90 },
  { actual: 130, granted: [100, 30], used: 100 },
])('a late cost of $actual of spend gives back to the month that has ended', async (each) => {
  const { clock, quota, requests, used } = await monthAndCredits()
  const sources = requests.map(({ ratelimit, key }) => ({ ratelimit, key }))
  const spent = allowed(await spend(sources, { rate: 140 }))
  clock.ms = END + HOUR_MS - 1
  expect(await spent.commit(each.actual)).toMatchObject({ granted: each.granted })
  expect(await used()).toBe(each.granted[1])
  expect(await close({ quota })).toMatchObject([{ used: each.used, reserved: 0 }])
})

test.each([
  { actual: 25, used: -15 },
  { actual: 70, used: 30 },
])(
  'a late cost of $actual is a correction if the next call has handed the period out',
  async ({ actual, used }) => {
    const { clock, quota, reservation } = await reserved()
    clock.ms = END
    const next = await quota.limit('key', { rate: 3 })
    const start = Date.UTC(2026, 0, 1)
    expect(next).toMatchObject({ ended: { start, end: END, used: 50, reserved: 40 } })
    expect(await reservation.commit(actual)).toMatchObject({
      remaining: 97,
      correction: { start, end: END, used },
    })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 3 })
  },
)

test('a late cost is a correction if closePeriods has handed the period out, and makes no row', async () => {
  const { clock, quota, rows, reservation } = await reserved()
  clock.ms = END
  expect(await close({ quota })).toMatchObject([{ used: 50, reserved: 40 }])
  const correction = { end: END, used: 30 }
  expect(await reservation.commit(70)).toMatchObject({ remaining: 100, correction })
  expect(await rows()).toEqual([])
})

test.each([
  { actual: 25, used: 35, limit: 150 },
  { actual: 70, used: 80, limit: 120 },
])('a late cost of $actual changes what is carried over, also in its answer', async (each) => {
  const entries: Entry[] = []
  const write = async (_: Database, made: readonly Entry[]) => entries.push(...made)
  const carrying = calendarWindow(100, 'month', { rollover: { max: 50 } })
  const { clock, quota, reservation } = await reserved({
    ...KEEPING,
    limiter: carrying,
    use: [ledger(write)],
  })
  clock.ms = END
  const left = { limit: each.limit, remaining: each.limit }
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 150 })
  expect(await reservation.commit(each.actual)).toMatchObject(left)
  expect(entries.at(-1)).toMatchObject({ units: each.actual - 40, remaining: each.limit })
  expect(await quota.getRemaining('key')).toMatchObject(left)
  expect(await quota.limit('key')).toMatchObject({ ended: { used: each.used, reserved: 0 } })
})

test('closePeriods waits for the grace time', async () => {
  const { clock, quota, reservation } = await reserved()
  clock.ms = END + HOUR_MS - 1
  expect(await close({ quota }, '1h')).toEqual([])
  await reservation.release()
  clock.ms = END + HOUR_MS
  expect(await close({ quota }, '1h')).toMatchObject([{ key: 'key', used: 10 }])
})

test('after the grace time, and without one, a late cost is charged as before', async () => {
  const { grace: _, ...without } = KEEPING
  for (const [options, at] of [
    [KEEPING, END + HOUR_MS],
    [without, END],
  ] as const) {
    const more = await reserved(options)
    more.clock.ms = at
    expect(await more.reservation.commit(70)).toMatchObject({
      remaining: 70,
      ended: { used: 50, reserved: 40 },
    })
    const less = await reserved(options)
    less.clock.ms = at
    expect(await less.reservation.commit(25)).toMatchObject({ returned: 0 })
  }
})

test('a rollback undoes the correction, and it can be made again', async () => {
  const { clock, quota, reservation } = await reserved()
  clock.ms = END
  await undone(database.db, async (tx) => {
    await reservation.commit(25, { tx })
  })
  await reservation.commit(30)
  expect(await close({ quota })).toMatchObject([{ used: 40 }])
})

test('a running period is settled as always, and so are buckets and what a dry run let pass', async () => {
  const { quota, reservation } = await reserved()
  expect(await reservation.commit(25)).toMatchObject({ returned: 15, remaining: 65 })
  const passed = await reserved({ ...KEEPING, dryRun: true })
  const over = allowed(await passed.quota.reserve('key', { rate: 400 }))
  passed.clock.ms = END
  expect(await over.commit(500)).not.toHaveProperty('correction')
  const bucket = TEN['interval bucket']
  const own = allowed(await quota.reserve('bucket', { rate: 4, limiter: bucket }))
  expect(await own.commit(1)).toMatchObject({ returned: 3 })
})

test('a fixed window is corrected too', async () => {
  const { clock, quota } = quotaOn(database, Ratelimit.fixedWindow(100, '1d'), KEEPING)
  const reservation = allowed(await quota.reserve('key', { rate: 40 }))
  clock.advance(24 * HOUR_MS)
  expect(await reservation.commit(15)).toMatchObject({ returned: 25 })
  expect(await database.db.transaction((tx) => closePeriods(quota, { tx }))).toMatchObject([{ used: 15 }])
})

test.each<Partial<QuotaConfig>>([
  { grace: '1h' } as never,
  { keepEnded: true, grace: '1 month' as never },
  { keepEnded: true, grace: 0 },
])('%j is refused', (options) => {
  expect(() => quotaOn(database, limiter, options)).toThrow(/grace/)
})

test('every period is billed what it has cost, in any order of calls, costs and closings', async () => {
  const anyStep = fc.record({
    op: fc.constantFrom('limit', 'reserve', 'reserve', 'settle', 'settle', 'wait', 'close'),
    amount: fc.integer({ min: 0, max: 30 }),
    which: fc.nat(),
    ms: fc.constantFrom(1, HOUR_MS / 2, 20 * HOUR_MS),
  })
  let corrections = 0
  const property = fc.asyncProperty(fc.array(anyStep, { maxLength: 40, size: 'max' }), async (steps) => {
    const plan = calendarWindow(1000, 'day')
    const { clock, quota } = quotaOn(database, plan, { ...KEEPING, grace: '100d' })
    const [cost, billed] = [new Map<number, number>(), new Map<number, number>()]
    const add = (to: Map<number, number>, start = 0, amount = 0) =>
      to.set(start, (to.get(start) ?? 0) + amount)
    const open: { readonly reservation: Reservation; readonly start: number | undefined }[] = []
    const settleOne = async (which: number, amount: number) => {
      const [one] = open.splice(which % Math.max(open.length, 1), 1)
      if (!one) return
      const { ended, correction } = await one.reservation.commit(amount)
      add(cost, one.start, amount)
      if (ended) add(billed, ended.start, ended.used)
      if (correction) add(billed, correction.start, correction.used)
      if (correction) corrections++
    }
    const closeAll = async () => {
      for (const { start, used } of await database.db.transaction((tx) => closePeriods(quota, { tx }))) {
        add(billed, start, used)
      }
    }
    for (const { op, amount, which, ms } of steps) {
      if (op === 'wait') clock.advance(ms)
      else if (op === 'close') await closeAll()
      else if (op === 'settle') await settleOne(which, amount)
      else if (amount > 0) {
        const reserving = op === 'reserve' ? await quota.reserve('key', { rate: amount }) : undefined
        const answer = reserving ?? (await quota.limit('key', { rate: amount }))
        if (!answer.success) continue
        if (answer.ended) add(billed, answer.ended.start, answer.ended.used)
        if (reserving?.success) open.push({ reservation: reserving, start: answer.start })
        else add(cost, answer.start, amount)
      }
    }
    while (open.length > 0) await settleOne(0, 7)
    clock.advance(48 * HOUR_MS)
    await closeAll()
    const inOrder = (sums: Map<number, number>) =>
      [...sums].filter(([, sum]) => sum !== 0).toSorted(([one], [other]) => one - other)
    expect(inOrder(billed)).toEqual(inOrder(cost))
  })
  // In any 60 sequences there may be no correction. In this one there is.
  const ops = ['reserve', 'wait', 'wait', 'close', 'settle'] as const
  const corrected = ops.map((op, place) => ({ op, amount: 5 + place, which: 0, ms: 20 * HOUR_MS }))
  await fc.assert(property, { ...runs(60), examples: [[corrected]] })
  expect(corrections).toBeGreaterThan(0)
})
