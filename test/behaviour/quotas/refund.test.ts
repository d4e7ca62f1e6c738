import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Allowed, Ratelimit, type RefundOptions } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { HOUR_MS, kinds, oneOfEachKind, quotaOn, TEN } from '../../support/ten.ts'
import { watch } from '../../support/watch.ts'

// A refund names the window that paid by its start, and no other window gives back.

const database = useDatabase()
const windows = kinds.filter(({ limiter }) => limiter.algorithm.kind === 'window')
const buckets = oneOfEachKind.filter(({ limiter }) => limiter.algorithm.kind === 'bucket')

describe.each(windows)('$name', ({ limiter }) => {
  test('an answer has the start of the charged window', async () => {
    const { quota } = quotaOn(database, limiter)
    for (const rate of [4, 1]) {
      const { start } = (await quota.limit('key', { rate })) as Allowed
      expect(start).toBe((await quota.getRemaining('key')).start)
    }
    expect(await quota.limit('key', { rate: 0 })).not.toHaveProperty('start')
    expect(await quota.limit('key', { rate: 9 })).not.toHaveProperty('start')
    expect(await quota.limit('key', { rate: 9, force: true })).toHaveProperty('start')
  })

  test('a window gives back until its last millisecond, and the next one gives nothing', async () => {
    const { clock, quota } = quotaOn(database, limiter)
    const used = async () => (await quota.getRemaining('key')).used
    const { start = 0, reset } = (await quota.limit('key', { rate: 6 })) as Allowed
    // A sliding window is whole again a window after its end.
    const end = limiter.algorithm.name === 'slidingWindow' ? start + 10 * HOUR_MS : reset
    clock.ms = end - 1
    await quota.limit('key', { rate: -2, start })
    expect(await used()).toBe(4)
    clock.advance(1)
    await quota.limit('key', { rate: 3 })
    const before = await used()
    expect(await quota.limit('key', { rate: -2, start })).toMatchObject({ success: true })
    expect(await used()).toBe(before)
    await quota.limit('key', { rate: -2 })
    expect(await used()).toBe(before - 2)
  })

  test('a key without a row, or with a later window, gets nothing back and no write', async () => {
    const { clock, quota, rows } = quotaOn(database, limiter)
    const { start = 0 } = (await quota.limit('key', { rate: 6 })) as Allowed
    await quota.limit('none', { rate: -6, start })
    clock.advance(100 * 24 * HOUR_MS)
    const before = await rows()
    await quota.limit('key', { rate: -6, start })
    expect(await rows()).toEqual(before)
    expect(before).toHaveLength(1)
  })

  test('equal refunds that share a statement say what is left after all of them', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 9 })
    const refunds = await Promise.all([-2, -2, -2].map((rate) => quota.limit('key', { rate })))
    expect(refunds.slice(1)).toMatchObject([{ remaining: 7 }, { remaining: 7 }])
  })

  test('each of several refunds at once goes to its own window', async () => {
    const { clock, quota } = quotaOn(database, limiter)
    const { start: old = 0 } = (await quota.limit('key', { rate: 2 })) as Allowed
    clock.advance(60 * 24 * HOUR_MS)
    const { start = 0 } = (await quota.limit('key', { rate: 8 })) as Allowed
    const refunds = [old, start, old, start].map((each) => quota.limit('key', { rate: -1, start: each }))
    await Promise.all(refunds)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 6 })
  })
})

test('a larger plan gives back to the same period', async () => {
  const { quota } = quotaOn(database, calendarWindow(10, 'month'))
  const { start = 0 } = (await quota.limit('key', { rate: 6 })) as Allowed
  await quota.limit('key', { rate: -6, start, limiter: calendarWindow(1000, 'month') })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
})

test.each(buckets)('after a change to another plan, $name, nothing is given back', async ({ limiter }) => {
  const { quota, rows } = quotaOn(database, limiter)
  await quota.limit('key', { rate: 6 })
  const before = await rows()
  const refund = await quota.limit('key', { rate: -6, start: 5 })
  expect(refund).toMatchObject({ success: true, remaining: 4, returned: 0 })
  expect(await rows()).toEqual(before)
})

test.each(buckets)('an answer of $name has no start, and its refund needs none', async ({ limiter }) => {
  const { quota } = quotaOn(database, limiter)
  const { start } = (await quota.limit('key', { rate: 6 })) as Allowed
  expect(start).toBeUndefined()
  expect(await quota.limit('key', { rate: -6, start })).toMatchObject({ remaining: 10 })
})

test.each<[string, object]>([
  ['without a rate', { start: 5 }],
  ['of a charge', { rate: 1, start: 5 }],
  ['of a look', { rate: 0, start: 5 }],
  ['that is no number', { rate: -1, start: Number.NaN }],
  // As a column may hold it: any window would give back.
  ['that is null', { rate: -1, start: null }],
  ['that is a Date', { rate: -1, start: new Date() }],
  ['that is infinite', { rate: -1, start: Number.NEGATIVE_INFINITY }],
])('a start %s is refused before any SQL', async (_, options) => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, TEN['fixed window'], { db })
  const refused = quota.limit('key', options as RefundOptions)
  await expect(refused).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(statements).toEqual([])
})

test('an answer without a charge has no start', async () => {
  const { quota } = quotaOn(database, TEN['fixed window'], { dryRun: true })
  await quota.limit('key', { rate: 10 })
  expect(await quota.limit('key')).not.toHaveProperty('start')
  const unlimited = quotaOn(database, Ratelimit.unlimited()).quota
  expect(await unlimited.limit('key')).not.toHaveProperty('start')
  const refund = await unlimited.limit('key', { rate: -1, start: 5 })
  expect(refund).toMatchObject({ success: true, returned: 0 })
})
