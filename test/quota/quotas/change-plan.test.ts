import { usage } from 'drizzle-ratelimit/reports'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, Ratelimit } from '../../../src/index.ts'
import { closePeriods, Quota, type QuotaConfig } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { HOUR_MS, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'

const database = useDatabase()
const [month, year] = [calendarWindow(100, 'month'), calendarWindow(1000, 'year')]
const day = calendarWindow(100, 'day')
const [MARCH, CHANGE] = [Date.UTC(2026, 2, 1), Date.UTC(2026, 2, 15, 12)]
const KEEPING = { keepEnded: true } as const

/** 60 of a month were used before the middle of March. */
async function used60() {
  const made = quotaOn(database, month, KEEPING)
  made.clock.ms = Date.UTC(2026, 2, 10)
  await made.quota.limit('key', { rate: 60 })
  made.clock.ms = CHANGE
  const close = (limiter: Limiter) =>
    database.db.transaction((tx) => closePeriods(made.quota, { tx, limiterOf: () => limiter }))
  return { ...made, close }
}

test('both halves have a start and an end of their own, and each unit is in one of them', async () => {
  const { clock, quota, close } = await used60()
  const first = await quota.changePlan('key', { from: month, to: year })
  expect(first).toEqual({ start: MARCH, end: CHANGE, used: 60, reserved: 0 })
  expect(await quota.getRemaining('key', { limiter: year })).toMatchObject({ used: 0, remaining: 1000 })
  expect(await quota.limit('key', { rate: 300, limiter: year })).toMatchObject({ start: CHANGE })
  clock.ms = Date.UTC(2026, 8, 1)
  const second = await quota.changePlan('key', { from: year, to: month })
  expect(second).toEqual({ start: CHANGE, end: clock.ms, used: 300, reserved: 0 })
  await quota.limit('key', { rate: 7 })
  clock.ms = Date.UTC(2026, 9, 2)
  const third = { start: Date.UTC(2026, 8, 1), end: Date.UTC(2026, 9, 1), used: 7, reserved: 0 }
  expect(await close(month)).toEqual([{ key: 'key', ...third }])
})

test('processes that still have the old plan count on the same row, and grant nothing twice', async () => {
  const { quota } = await used60()
  await quota.changePlan('key', { from: month, to: year })
  expect(await quota.limit('key', { rate: 100, limiter: month })).toMatchObject({
    success: true,
    remaining: 0,
  })
  expect(await quota.limit('key', { rate: 1, limiter: month })).toMatchObject({ success: false })
  expect(await quota.getRemaining('key', { limiter: year })).toMatchObject({ used: 100, remaining: 900 })
})

test('a period that was over ends when it ended', async () => {
  const { clock, quota } = await used60()
  clock.ms = Date.UTC(2026, 3, 20)
  expect(await quota.changePlan('key', { from: month, to: year })).toEqual({
    ...{ start: MARCH, end: Date.UTC(2026, 3, 1), used: 60, reserved: 0 },
  })
  expect(await quota.limit('key', { limiter: year })).toMatchObject({ start: clock.ms })
})

test('a key without a row, and one that used nothing, begin now too', async () => {
  const { clock, quota } = await used60()
  expect(await quota.changePlan('new', { from: month, to: year })).toBeUndefined()
  expect(await quota.limit('new', { limiter: year })).toMatchObject({ start: CHANGE })
  await quota.limit('idle', { rate: 5 })
  await quota.limit('idle', { rate: -5 })
  clock.advance(1)
  expect(await quota.changePlan('idle', { to: year })).toBeUndefined()
  expect(await quota.limit('idle', { limiter: year })).toMatchObject({ start: CHANGE + 1 })
})

test('it joins a transaction, and a rollback undoes it', async () => {
  const { quota, rows } = await used60()
  const before = await rows()
  await undone(database.db, async (tx) => {
    expect(await quota.changePlan('key', { to: year, tx })).toMatchObject({ used: 60 })
  })
  expect((await rows()).map(({ stored }) => stored)).toEqual(before.map(({ stored }) => stored))
})

test('a denial from memory does not outlast the period', async () => {
  const renewed = Ratelimit.fixedWindow(3, '30d')
  const { clock, quota } = quotaOn(database, renewed, { ...KEEPING, inMemoryBlock: true })
  await quota.limit('key', { rate: 3 })
  expect(await quota.limit('key')).toMatchObject({ success: false })
  clock.advance(HOUR_MS)
  expect(await quota.changePlan('key', { to: renewed })).toMatchObject({ used: 3, end: clock.ms })
  expect(await quota.limit('key')).toMatchObject({ success: true, remaining: 2 })
})

test('an open estimate is in the half in which it was made, and its rest in the other', async () => {
  const { quota } = await used60()
  const reserved = allowed(await quota.reserve('key', { rate: 10 }))
  expect(await quota.changePlan('key', { to: year })).toMatchObject({ used: 70, reserved: 10 })
  expect(await reserved.commit(25, { limiter: year })).toMatchObject({ remaining: 985 })
})

test('within the grace time a late cost corrects the first half', async () => {
  const { config } = await used60()
  const quota = new Quota({ ...config, keepEnded: true, grace: '1d' } as typeof config)
  const reserved = allowed(await quota.reserve('key', { rate: 10 }))
  const ended = await quota.changePlan('key', { to: year })
  const { correction } = await reserved.commit(25, { limiter: year })
  expect(correction).toEqual({ start: MARCH, end: CHANGE, used: 15 })
  expect(ended).toMatchObject({ start: MARCH, end: CHANGE })
  expect(await quota.getRemaining('key', { limiter: year })).toMatchObject({ used: 0 })
})

test.each([
  { to: year, settledAs: month },
  { to: year, settledAs: year },
  { to: day, settledAs: day },
])('the grace time of the first half begins with the change: $#', async ({ to, settledAs }) => {
  const { clock, config } = await used60()
  const keeping = { ...config, keepEnded: true, grace: '1h' }
  const quota = new Quota(keeping as typeof config)
  const [here, , late] = await Promise.all([1, 2, 3].map(() => quota.reserve('key', { rate: 10 })))
  if (!here?.success || !late?.success) throw new Error('denied')
  const names = ['by name', 'its own', 'too late'] as const
  const [, own] = await Promise.all(
    names.map((id) => quota.reserve('key', { rate: 3, id, expires: '1d', limiter: month })),
  )
  if (!own?.success) throw new Error('denied')
  await quota.changePlan('key', { to })
  clock.ms = CHANGE + HOUR_MS - 1
  const correction = { start: MARCH, end: CHANGE, used: 15 }
  expect(await here.commit(25, { limiter: settledAs })).toMatchObject({ correction })
  const named = { correction: { ...correction, used: 5 } }
  const plan = { limiter: settledAs }
  expect(await quota.settle({ key: 'key', id: 'by name' }, 8, plan)).toMatchObject(named)
  expect(await own.commit(8, plan)).toMatchObject(named)
  clock.ms = CHANGE + HOUR_MS
  const tooLate = await quota.settle({ key: 'key', id: 'too late' }, 3, plan)
  expect(tooLate).not.toHaveProperty('correction')
  expect(await late.commit(25, { limiter: settledAs })).not.toHaveProperty('correction')
  expect(await quota.getRemaining('key', { limiter: to })).toMatchObject({ used: 15 })
})

test('a list by plan knows the row as one of the new plan, and so does a late settling without a plan', async () => {
  const { quota } = await used60()
  await quota.changePlan('key', { to: year })
  const reserved = allowed(await quota.reserve('key', { rate: 4, limiter: year }))
  expect(await reserved.commit(3)).toMatchObject({ remaining: 997 })
  expect(await usage(quota, { limiterOf: () => year })).toMatchObject([
    { key: 'key', used: 3, remaining: 997 },
  ])
})

test('fixed windows, windows that carry over, and another algorithm', async () => {
  const { clock, quota } = await used60()
  const fixed = Ratelimit.fixedWindow(10, '1d')
  expect(await quota.changePlan('key', { to: fixed })).toMatchObject({ used: 60 })
  expect(await quota.limit('key', { rate: 3, limiter: fixed })).toMatchObject({ remaining: 7, start: CHANGE })
  clock.advance(1000)
  const rollover = calendarWindow(100, 'month', { rollover: { max: 50 } })
  const ended = await quota.changePlan('key', { from: fixed, to: rollover })
  expect(ended).toEqual({ start: CHANGE, end: CHANGE + 1000, used: 3 })
  clock.ms = Date.UTC(2026, 3, 1)
  expect(await quota.getRemaining('key', { limiter: rollover })).toMatchObject({ limit: 150 })
})

test('a wrong `from` loses nothing: the call is refused, so a change that is repeated is too', async () => {
  const { quota, rows } = await used60()
  const fixed = Ratelimit.fixedWindow(10, '1d')
  const before = await rows()
  const refused = expect.objectContaining({ code: 'OTHER_PLAN' })
  await expect(quota.changePlan('key', { from: fixed, to: year })).rejects.toEqual(refused)
  expect((await rows()).map(({ stored }) => stored)).toEqual(before.map(({ stored }) => stored))
  expect(await quota.changePlan('key', { to: fixed })).toMatchObject({ used: 60 })
  // Nothing is counted yet, so nothing can be lost.
  expect(await quota.changePlan('key', { to: fixed })).toBeUndefined()
  await quota.limit('key', { rate: 3, limiter: fixed })
  await expect(quota.changePlan('key', { to: fixed })).rejects.toEqual(refused)
  expect(await quota.getRemaining('key', { limiter: fixed })).toMatchObject({ used: 3 })
})

test('the row of a limit without periods is replaced', async () => {
  const { quota } = await used60()
  await quota.limit('bucket', { limiter: TEN['interval bucket'] })
  expect(await quota.changePlan('bucket', { to: year })).toBeUndefined()
  expect(await quota.limit('bucket', { limiter: year })).toMatchObject({ start: CHANGE, remaining: 999 })
})

test.each<[string, object]>([
  ['a bucket', { to: TEN['interval bucket'] }],
  ['no limit', { to: Ratelimit.unlimited() }],
  ['nothing', {}],
  ['from a bucket', { from: TEN['interval bucket'], to: year }],
  ['an unknown option', { too: year, to: year }],
])('%s is refused', async (_, options) => {
  const { quota } = await used60()
  await expect(quota.changePlan('key', options as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
})

test.each<Partial<QuotaConfig>>([{}, { keepEnded: true, onOtherPlan: 'throw' }])(
  'on a limiter with %j it is refused',
  async (options) => {
    const { quota } = quotaOn(database, month, options)
    await expect(quota.changePlan('key', { to: year })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  },
)

test('by the clock of the database, a period begins in the calendar period that holds it', async () => {
  const { config } = quotaOn(database, month, KEEPING)
  const { clock: _, ...without } = config
  const quota = new Quota(without as typeof config)
  await quota.limit('key', { rate: 5 })
  const ended = await quota.changePlan('key', { to: year })
  expect(ended).toMatchObject({ used: 5 })
  expect(Math.abs((ended?.end ?? 0) - Date.now())).toBeLessThan(60_000)
})
