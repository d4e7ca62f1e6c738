import { sql } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { remainingOf, resetOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import fc from 'fast-check'
import { DateTime } from 'luxon'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { limitAll, rateLimitEphemeral } from '../../../src/index.ts'
import { closePeriods, spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { quotaOn } from '../../support/ten.ts'

const database = useDatabase()
const month = (n: number, day = 1) => Date.UTC(2026, n, day)
const limiter = calendarWindow(100, 'month', { rollover: { max: 50 } })

test('what is left is carried over, up to the most', async () => {
  const { clock, quota } = quotaOn(database, limiter)
  clock.ms = month(0, 10)
  expect(await quota.limit('key', { rate: 70 })).toMatchObject({ limit: 100, remaining: 30 })
  clock.ms = month(1, 10)
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 130, remaining: 130, used: 0 })
  expect(await quota.limit('key', { rate: 131 })).toMatchObject({
    ...{ success: false, limit: 130, remaining: 130 },
    reset: month(2),
  })
  const charged = await quota.limit('key', { rate: 10 })
  expect(charged).toMatchObject({ limit: 130, remaining: 120, start: month(1), reset: month(2) })
  expect(charged).toMatchObject({ ended: { start: month(0), end: month(1), used: 70, reserved: 0 } })
  clock.ms = month(2, 10)
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 150, remaining: 150 })
})

test('a new key has nothing from before, and what was carried over cannot be carried again beyond the most', async () => {
  const { clock, quota } = quotaOn(database, limiter)
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 100, remaining: 100 })
  expect(await quota.limit('key', { rate: 101 })).toMatchObject({ success: false, reset: Infinity })
  await quota.limit('key', { rate: 1 })
  clock.ms = month(6)
  expect(await quota.limit('key', { rate: 120 })).toMatchObject({ limit: 150, remaining: 30 })
  clock.ms = month(7)
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 130 })
})

test('a debt is not carried over, and neither is a suspended month', async () => {
  const { clock, quota } = quotaOn(database, limiter)
  clock.ms = month(0)
  await quota.limit('key', { rate: 400, force: true })
  clock.ms = month(1)
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 100, remaining: 100 })
})

test('a refund to the period before changes nothing, and cleanup keeps what was left', async () => {
  const { clock, quota } = quotaOn(database, limiter)
  clock.ms = month(0)
  const { start } = (await quota.limit('key', { rate: 80 })) as { start?: number }
  clock.ms = month(1)
  expect(await quota.limit('key', { rate: -80, start })).toMatchObject({ returned: 0, limit: 120 })
  clock.ms = month(30)
  expect(await quota.cleanup()).toBe(0)
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 150 })
})

test('a plan without rollover counts on the same row, and takes what was carried over away', async () => {
  const { clock, quota } = quotaOn(database, limiter, { thresholds: [0.5] })
  const plain = calendarWindow(100, 'month')
  clock.ms = month(0)
  await quota.limit('key', { rate: 60, limiter: plain })
  clock.ms = month(1)
  expect(await quota.limit('key', { rate: 65 })).toMatchObject({ limit: 140, remaining: 75 })
  const answer = await quota.limit('key', { rate: 1, limiter: plain })
  expect(answer).toMatchObject({ limit: 100, remaining: 34 })
  expect(answer).not.toHaveProperty('crossed')
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 100, remaining: 34 })
})

test('a change from a plan that carries over crosses nothing again, also if nothing was carried over', async () => {
  const { clock, quota } = quotaOn(database, limiter, { thresholds: [{ used: 25 }] })
  clock.ms = month(0)
  expect(await quota.limit('key', { rate: 30 })).toHaveProperty('crossed')
  const plain = calendarWindow(100, 'month')
  expect(await quota.limit('key', { rate: 1, limiter: plain })).not.toHaveProperty('crossed')
  expect(await quota.limit('key', { rate: 1 })).not.toHaveProperty('crossed')
})

test('a smaller most applies at once', async () => {
  const { clock, quota } = quotaOn(database, limiter)
  clock.ms = month(0)
  await quota.limit('key', { rate: 60 })
  clock.ms = month(1)
  await quota.limit('key', { rate: 1 })
  const smaller = calendarWindow(100, 'month', { rollover: { max: 10 } })
  expect(await quota.getRemaining('key', { limiter: smaller })).toMatchObject({ limit: 110, remaining: 109 })
})

test('closePeriods hands a period out, and leaves what is carried over', async () => {
  const { clock, quota } = quotaOn(database, limiter, { keepEnded: true })
  clock.ms = month(0)
  await quota.limit('one', { rate: 70 })
  await quota.limit('two', { rate: 10 })
  clock.ms = month(1)
  const close = () => database.db.transaction((tx) => closePeriods(quota, { tx }))
  expect(await close()).toMatchObject([
    { key: 'one', start: month(0), end: month(1), used: 70 },
    { key: 'two', start: month(0), end: month(1), used: 10 },
  ])
  expect(await close()).toEqual([])
  expect(await quota.getRemaining('one')).toMatchObject({ limit: 130, used: 0 })
  expect(await quota.limit('one', { rate: 125 })).not.toHaveProperty('ended')
  // An idle month is no period of use, and is counted all the same.
  clock.ms = month(3)
  expect(await close()).toMatchObject([{ key: 'one', start: month(1), end: month(2), used: 125 }])
  expect(await quota.getRemaining('one')).toMatchObject({ limit: 150 })
  expect(await quota.getRemaining('two')).toMatchObject({ limit: 150 })
})

test('spend, limitAll and reservations see what was carried over', async () => {
  const { clock, quota } = quotaOn(database, limiter)
  const request = { ratelimit: quota, key: 'key' }
  clock.ms = month(0)
  await quota.limit('key', { rate: 60 })
  clock.ms = month(1)
  expect(await limitAll([{ ...request, rate: 135 }])).toMatchObject({ success: true })
  expect(await spend([request], { rate: 6 })).toMatchObject({
    success: false,
    retryAfter: month(2) - month(1),
  })
  const reserved = allowed(await quota.reserve('key', { rate: 5 }))
  expect(await reserved.commit(3)).toMatchObject({ remaining: 2 })
  clock.ms = month(2)
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 102 })
})

test.each([
  { max: 0 },
  { max: 101 },
  { max: 1.5 },
  { max: -1 },
  { max: '5' },
  {},
  { most: 5 },
  null,
  5,
  false,
])('rollover: %j is refused', (rollover) => {
  const options = { rollover } as never
  expect(() => calendarWindow(100, 'month', options)).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION' }),
  )
})

test('a window without a limit carries nothing over', () => {
  const make = () => calendarWindow(Number.POSITIVE_INFINITY, 'month', { rollover: { max: 5 } })
  expect(make).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
})

/** A period of the model: what it had, and what was used of it. */
interface Period {
  readonly start: number
  readonly carried: number
  used: number
}

test('any months, calls and idle months agree with a model that counts each period', async () => {
  const zone = 'Europe/Berlin'
  const startOf = (time: number, unit: 'day' | 'month') => DateTime.fromMillis(time, { zone }).startOf(unit)
  const anyStep = fc.record({
    op: fc.constantFrom('limit', 'limit', 'force', 'refund', 'wait', 'wait', 'close'),
    amount: fc.integer({ min: 1, max: 60 }),
    days: fc.constantFrom(0, 1, 2, 15, 31, 70),
  })
  const property = fc.asyncProperty(
    fc.array(anyStep, { minLength: 1, maxLength: 25, size: 'max' }),
    fc.constantFrom('day' as const, 'month' as const),
    fc.integer({ min: 1, max: 100 }),
    async (steps, unit, max) => {
      const plan = calendarWindow(100, unit, { timeZone: zone, rollover: { max } })
      const { clock, quota, prefix } = quotaOn(database, plan, { keepEnded: true })
      clock.ms = month(2, 20)
      let period: Period | undefined
      const billed: object[] = []
      const expected: object[] = []
      for (const { op, amount, days } of steps) {
        if (op === 'wait') clock.advance(days * 86_400_000 + amount * 3_600_000)
        const start = startOf(clock.ms, unit)
        // Each period after the last one begins with what that one had left, also if nobody called in it.
        let now: Period = period ?? { start: start.toMillis(), carried: 0, used: 0 }
        while (now.start < start.toMillis()) {
          const next = DateTime.fromMillis(now.start, { zone })
            .plus({ [unit]: 1 })
            .toMillis()
          now = { start: next, carried: Math.min(Math.max(100 + now.carried - now.used, 0), max), used: 0 }
        }
        const limit = 100 + now.carried
        const end = start.plus({ [unit]: 1 }).toMillis()
        const later = 100 + Math.min(Math.max(limit - now.used, 0), max)
        const isOver = period !== undefined && period.start < now.start
        const told = () => {
          const { start: began = 0, used = 0 } = period ?? {}
          const over = DateTime.fromMillis(began, { zone })
            .plus({ [unit]: 1 })
            .toMillis()
          expected.push({ start: began, end: over, used, reserved: 0 })
        }
        if (op === 'limit' || op === 'force') {
          const answer = await quota.limit('key', { rate: amount, force: op === 'force' })
          const fits = now.used + amount <= limit
          expect(answer.success).toBe(fits || op === 'force')
          if (!answer.success) {
            const ends = startOf(end, unit)
              .plus({ [unit]: 1 })
              .toMillis()
            expect(answer.reset).toBe(
              period && amount <= later ? end : amount <= (period ? 100 + max : 100) ? ends : Infinity,
            )
            continue
          }
          if (answer.ended) billed.push(answer.ended)
          if (isOver) told()
          period = { ...now, used: now.used + amount }
        } else if (op === 'refund') {
          const answer = await quota.limit('key', { rate: -amount })
          if (answer.success && answer.ended) billed.push(answer.ended)
          if (now.used > 0) period = { ...now, used: Math.max(now.used - amount, 0) }
        } else if (op === 'close') {
          const closed = await database.db.transaction((tx) => closePeriods(quota, { tx }))
          billed.push(...closed.map(({ key: _, ...ended }) => ended))
          if (isOver) {
            if (closed.length > 0) told()
            period = now
          }
        }
        const used = period?.start === now.start ? period.used : 0
        const remaining = Math.max(limit - used, 0)
        const reset = used <= 0 ? clock.ms : end
        const seen = await quota.getRemaining('key')
        expect(seen).toEqual({ limit, remaining, reset, used, start: now.start })
        const read = [usedOf, remainingOf, resetOf].map((of) =>
          of(rateLimitEphemeral, plan, { clock: clock.now }),
        )
        const [one, two, three] = read
        const query = sql`select ${one} as used, ${two} as remaining, ${three} as reset from ${rateLimitEphemeral}
          where ${rateLimitEphemeral.prefix} = ${prefix}`
        for (const row of await database.rows(new PgDialect().sqlToQuery(query.inlineParams()).sql)) {
          expect([row['used'], row['remaining'], row['reset']].map(Number)).toEqual([used, remaining, reset])
        }
        const listed = await usage({
          db: database.db,
          prefix,
          limiter: plan,
          durable: false,
          clock: clock.now,
        })
        expect(listed).toEqual(used > 0 ? [{ key: 'key', ...seen }] : [])
      }
      expect(billed).toEqual(expected)
    },
  )
  await fc.assert(property, runs(60))
})
