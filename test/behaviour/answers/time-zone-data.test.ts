import { usage } from 'drizzle-ratelimit/reports'
import { beforeEach, describe, expect, test } from 'vitest'
import { type CalendarOptions, type CalendarPeriod, calendarWindow } from '../../../src/calendar/index.ts'
import type { StoredLimiter } from '../../../src/kernel/limits/algorithm.ts'
import { closePeriods, Quota } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { stored } from '../../support/stored.ts'

// Two processes with different time zone data: one begins each period an hour before the other.

const database = useDatabase()
const HOUR_MS = 3_600_000
const start = Date.UTC(2026, 2, 1)
let clock: TestClock
beforeEach(() => {
  clock = new TestClock(start - 12 * HOUR_MS)
})

const calendars: readonly (readonly [CalendarPeriod, CalendarOptions, number])[] = [
  ['day', {}, start + 24 * HOUR_MS],
  ['week', { anchor: new Date(start - 7 * 24 * HOUR_MS) }, start + 7 * 24 * HOUR_MS],
  ['month', {}, Date.UTC(2026, 3, 1)],
  ['month', { anchor: new Date(Date.UTC(2025, 11, 1)) }, Date.UTC(2026, 3, 1)],
  ['month', { rollover: { max: 1 } }, Date.UTC(2026, 3, 1)],
]

/** The same limit, where each period begins later. */
function behind(limiter: StoredLimiter, byMs: number): StoredLimiter {
  const { periodAt } = limiter
  if (!periodAt) throw new Error('not a calendar')
  const shifted = (time: number) => {
    const { start, end } = periodAt(time - byMs)
    return { start: start + byMs, end: end + byMs }
  }
  return { ...limiter, periodAt: shifted }
}

let prefixes = 0
function processes(period: CalendarPeriod, options: CalendarOptions, byMs: number, more: object = {}) {
  const limiter = stored(calendarWindow(3, period, options))
  const config = {
    ...{ db: database.db, prefix: `zones ${prefixes++}`, clock: clock.now, cleanupProbability: 0 },
    ...more,
  }
  const early = new Quota({ ...config, limiter })
  const late = new Quota({ ...config, limiter: behind(limiter, byMs) })
  return { early, late, prefix: config.prefix, limiter, lateLimiter: behind(limiter, byMs) }
}

async function takeAll(...ratelimits: readonly Quota[]): Promise<number> {
  let taken = 0
  for (let i = 0; i < 5; i++) {
    for (const ratelimit of ratelimits) if ((await ratelimit.limit('key')).success) taken++
  }
  return taken
}

describe.each(calendars)('%s, %o', (period, options, end) => {
  test.each([
    ['by an hour', HOUR_MS],
    ['by half an hour', HOUR_MS / 2],
  ])('%s: nothing is granted once more', async (_, byMs) => {
    const { early, late } = processes(period, options, byMs)
    expect(await takeAll(late, early)).toBe(3)
    // The early process begins the period, and the other one counts in it, before and after its own start.
    clock.ms = start
    expect(await takeAll(early, late)).toBe(3)
    clock.ms = start + byMs - 1
    expect(await takeAll(late, early)).toBe(0)
    for (const at of [start + byMs, start + byMs + 1, start + 20 * HOUR_MS, end - 1]) {
      clock.ms = at
      await late.cleanup()
      expect(await takeAll(late, early)).toBe(0)
      expect(await late.getRemaining('key')).toMatchObject({ used: 3, start })
    }
    // A row is kept for the process that is late.
    clock.ms = end + byMs - 1
    await early.cleanup()
    expect(await takeAll(late)).toBe(0)
    clock.ms = end + byMs
    expect(await takeAll(late, early)).toBe(3)
  })
})

test.each(calendars)(
  '%s, %o: what the late process writes before its own start lasts, and its answers say until when',
  async (period, options, end) => {
    const { early, late } = processes(period, options, HOUR_MS)
    clock.ms = start
    expect(await early.limit('key')).toMatchObject({ success: true })
    clock.ms = start + HOUR_MS / 2
    expect(await takeAll(late)).toBe(2)
    expect(await late.limit('key')).toMatchObject({ success: false, reset: end + HOUR_MS })
    clock.ms = end - 1
    await late.cleanup()
    expect(await takeAll(early, late)).toBe(0)
    clock.ms = end + HOUR_MS - 1
    await late.cleanup()
    expect(await takeAll(late)).toBe(0)
    clock.ms = end + HOUR_MS
    expect(await takeAll(late)).toBe(3)
  },
)

test('rows of both are of their plan', async () => {
  const { early, late, prefix, lateLimiter } = processes('day', {}, HOUR_MS, { onOtherPlan: 'throw' })
  clock.ms = start
  expect(await early.limit('key')).toMatchObject({ success: true })
  clock.ms = start + HOUR_MS
  expect(await late.limit('key')).toMatchObject({ success: true, remaining: 1 })
  expect(await early.limit('key')).toMatchObject({ success: true, remaining: 0 })
  expect(await late.limit('other')).toMatchObject({ success: true, remaining: 2 })
  expect(await early.limit('other')).toMatchObject({ success: true, remaining: 1 })
  const rows = await usage({ db: database.db, prefix, limiter: lateLimiter, durable: true, clock: clock.now })
  expect(rows).toMatchObject([
    { key: 'key', used: 3 },
    { key: 'other', used: 2 },
  ])
})

test('a period that has begun is not closed by the other', async () => {
  const { early, late } = processes('day', {}, HOUR_MS, { keepEnded: true })
  clock.ms = start
  await early.limit('key')
  const close = () => database.db.transaction((tx) => closePeriods(late, { tx }))
  clock.ms = start + HOUR_MS
  expect(await close()).toEqual([])
  expect(await late.limit('key', { rate: 3 })).toMatchObject({ success: false })
  clock.ms = start + 25 * HOUR_MS - 1
  expect(await close()).toEqual([])
  clock.ms = start + 25 * HOUR_MS
  expect(await close()).toMatchObject([{ key: 'key', start, end: start + 25 * HOUR_MS, used: 1 }])
})

test('what is left is carried over once, whichever process begins', async () => {
  const { early, late } = processes('day', { rollover: { max: 2 } }, HOUR_MS)
  clock.ms = start
  expect(await early.limit('key')).toMatchObject({ remaining: 2 })
  clock.ms = start + 24 * HOUR_MS
  expect(await early.limit('key')).toMatchObject({ limit: 5, remaining: 4 })
  clock.ms = start + 25 * HOUR_MS
  expect(await late.limit('key')).toMatchObject({ limit: 5, remaining: 3 })
  expect(await early.limit('key')).toMatchObject({ limit: 5, remaining: 2 })
})

test('a plan of another period that changed in the last hour begins the next period as usual', async () => {
  const day = calendarWindow(3, 'day')
  const { early } = processes('month', {}, HOUR_MS, { keepEnded: true })
  clock.ms = start - HOUR_MS / 2 + 1
  await early.limit('key', { limiter: day, rate: 3 })
  await early.changePlan('key', { from: day, to: early.limiter })
  expect(await early.limit('key', { rate: 2 })).toMatchObject({ success: true })
  clock.ms = start
  expect(await early.limit('key', { rate: 3 })).toMatchObject({
    success: true,
    ended: { used: 2, end: start },
  })
})
