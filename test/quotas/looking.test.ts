import { describe, expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { Model } from '../support/model.ts'
import { watch } from '../support/watch.ts'
import { HOUR_MS, JANUARY, kinds, quotaOn, TEN, UNDO } from './ten.ts'

const database = useDatabase()

describe.each(kinds)('$name', ({ plan, limiter, windowStart }) => {
  test('a key that was never used has used nothing', async () => {
    const { clock, quota, rows } = quotaOn(database, limiter)
    expect(await quota.getRemaining('key')).toEqual({
      ...{ limit: 10, remaining: 10, reset: clock.ms, used: 0 },
      ...windowStart(clock.ms),
    })
    expect(await rows()).toEqual([])
  })

  test('says what was used, and since when', async () => {
    const { clock, quota, rows } = quotaOn(database, limiter)
    const start = windowStart(clock.ms)
    const { reset } = await quota.limit('key', { rate: 7 })
    const before = await rows()
    const model = new Model()
    model.limit(plan, clock.ms, 7)
    clock.advance(HOUR_MS / 2)
    // Of seven a continuous bucket has half of one again.
    const { used } = model.getRemaining(plan, clock.ms)
    expect(used).toBeGreaterThanOrEqual(6.5)
    expect(await quota.getRemaining('key')).toEqual({ limit: 10, remaining: 3, reset, used, ...start })
    expect(await rows()).toEqual(before)
  })

  test('what was given back is not used', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 7 })
    await quota.limit('key', { rate: -2 })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 5, remaining: 5 })
    await quota.limit('key', { rate: -100 })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0, remaining: 10 })
  })

  test('in a transaction finds what it has used, elsewhere not when it is rolled back', async () => {
    const { quota } = quotaOn(database, limiter)
    const undone = database.db.transaction(async (tx) => {
      await quota.limit('key', { rate: 7, tx })
      expect(await quota.getRemaining('key', { tx })).toMatchObject({ used: 7 })
      throw UNDO
    })
    await expect(undone).rejects.toBe(UNDO)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
  })

  test('is one statement that locks nothing', async () => {
    const { db, statements } = watch(database.db)
    const { quota } = quotaOn(database, limiter, { db })
    await quota.getRemaining('key')
    expect(statements).toHaveLength(1)
    expect(statements[0]).not.toContain('for update')
  })
})

test.each(kinds.filter(({ keeps }) => keeps === 'what was used'))(
  'after a downgrade more is used than the limit: $name',
  async ({ limiter, of, windowStart }) => {
    const { clock, quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 9 })
    expect(await quota.getRemaining('key', { limiter: of(4, '1h').limiter })).toMatchObject({
      ...{ limit: 4, remaining: 0, used: 9, ...windowStart(clock.ms) },
    })
  },
)

test('of a bucket in debt more is used than it holds, and less with each refill', async () => {
  const { clock, quota } = quotaOn(database, TEN['interval bucket'])
  await quota.limit('key', { rate: 12.5, force: true })
  for (const used of [12.5, 11.5, 10.5, 9.5]) {
    expect(await quota.getRemaining('key')).toMatchObject({
      used,
      remaining: used > 10 ? 0 : 0.5 + 10 - used - 1,
    })
    clock.advance(HOUR_MS)
  }
})

test('of a bucket that starts partly filled, what it never had is used', async () => {
  const limiter = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 4 })
  const { quota } = quotaOn(database, limiter)
  expect(await quota.getRemaining('key')).toMatchObject({ limit: 10, remaining: 4, used: 6 })
})

test('of a sliding window what counts is used: the window before fades, and is over the limit when it was', async () => {
  const { clock, quota } = quotaOn(database, TEN['sliding window'])
  const start = clock.ms
  await quota.limit('key', { rate: 20, force: true })
  clock.advance(15 * HOUR_MS)
  await quota.limit('key', { rate: 2, force: true })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 12, start: start + 10 * HOUR_MS })
  clock.advance(5 * HOUR_MS)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 2, start: start + 20 * HOUR_MS })
})

test.each([
  { name: 'sliding window', limiter: TEN['sliding window'], lastsMs: 20 * HOUR_MS },
  { name: 'fixed window', limiter: TEN['fixed window'], lastsMs: 10 * HOUR_MS },
])('of a $name that is over, the start is now', async ({ limiter, lastsMs }) => {
  const { clock, quota } = quotaOn(database, limiter)
  await quota.limit('key', { rate: 7 })
  clock.advance(lastsMs)
  const look = { limit: 10, remaining: 10, reset: clock.ms, used: 0, start: clock.ms }
  expect(await quota.getRemaining('key')).toEqual(look)
})

test('of a calendar the next period starts where the last one ends', async () => {
  const { clock, quota } = quotaOn(database, TEN['calendar month'])
  await quota.limit('key', { rate: 7 })
  clock.ms = JANUARY.end - 1
  expect(await quota.getRemaining('key')).toMatchObject({ used: 7, start: JANUARY.start, reset: JANUARY.end })
  clock.advance(1)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 0, start: JANUARY.end, reset: JANUARY.end })
})
