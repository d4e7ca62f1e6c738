import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { Model } from '../../support/model.ts'
import { HOUR_MS, JANUARY, kinds, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

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

  test('gives what was used, and since when', async () => {
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

  test('a refund lowers what is used', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 7 })
    await quota.limit('key', { rate: -2 })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 5, remaining: 5 })
    await quota.limit('key', { rate: -100 })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0, remaining: 10 })
  })

  test('in a transaction counts what the transaction has used, which others never see after a rollback', async () => {
    const { quota } = quotaOn(database, limiter)
    await undone(database.db, async (tx) => {
      await quota.limit('key', { rate: 7, tx })
      expect(await quota.getRemaining('key', { tx })).toMatchObject({ used: 7 })
    })
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
  'after a downgrade used may be more than the limit: $name',
  async ({ limiter, of, windowStart }) => {
    const { clock, quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 9 })
    expect(await quota.getRemaining('key', { limiter: of(4, '1h').limiter })).toMatchObject({
      ...{ limit: 4, remaining: 0, used: 9, ...windowStart(clock.ms) },
    })
  },
)

test('a bucket in debt has used more than it holds, and less with each refill', async () => {
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

describe('a bucket that starts partly filled', () => {
  const limiter = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 4 })
  const never = Number.POSITIVE_INFINITY

  test('counts the missing units as used', async () => {
    const { quota } = quotaOn(database, limiter)
    expect(await quota.getRemaining('key')).toMatchObject({ limit: 10, remaining: 4, used: 6 })
  })

  test('never fills as long as it is only looked at', async () => {
    const { clock, quota, rows } = quotaOn(database, limiter)
    const looks = async () => {
      const { results } = await limitAll([{ ratelimit: quota, key: 'key', rate: 0 }])
      return [await quota.getRemaining('key'), await quota.limit('key', { rate: 0 }), ...results]
    }
    for (let look = 0; look < 2; look++) {
      for (const answer of await looks()) expect(answer).toMatchObject({ remaining: 4, reset: never })
      clock.advance(100 * HOUR_MS)
    }
    expect(await rows()).toEqual([])
  })

  test.each([
    { first: 'an allowed check', rate: 1, left: 3 },
    { first: 'a denied check', rate: 5, left: 4 },
    { first: 'a refund', rate: -1, left: 5 },
  ])('fills from $first on', async ({ rate, left }) => {
    const { clock, quota } = quotaOn(database, limiter)
    clock.advance(HOUR_MS)
    await quota.limit('key', { rate })
    const reset = clock.ms + (10 - left) * HOUR_MS
    expect(await quota.getRemaining('key')).toMatchObject({ remaining: left, reset })
    expect(await quota.limit('key', { rate: 0 })).toMatchObject({ remaining: left, reset })
    clock.ms = reset - 1
    expect(await quota.getRemaining('key')).toMatchObject({ remaining: 9 })
    clock.advance(1)
    expect(await quota.getRemaining('key')).toMatchObject({ remaining: 10 })
  })

  test('fills from a limitAll on that another limit denies', async () => {
    const { clock, quota, config } = quotaOn(database, limiter)
    const empty = Ratelimit.fixedWindow(0, '1h')
    const denying = new Quota({ ...config, prefix: `${config.prefix} 0`, limiter: empty })
    const { results } = await limitAll([
      { ratelimit: quota, key: 'key' },
      { ratelimit: denying, key: 'key' },
    ])
    const reset = clock.ms + 6 * HOUR_MS
    expect(results[0]).toMatchObject({ success: true, remaining: 4, reset })
    expect(await quota.getRemaining('key')).toMatchObject({ remaining: 4, reset })
  })

  test('starts as new on a row of another algorithm', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { limiter: TEN['fixed window'] })
    expect(await quota.getRemaining('key')).toMatchObject({ remaining: 4, reset: never })
  })
})

test('a sliding window counts the fading part of the previous window as used, also above the limit', async () => {
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
])('an ended $name starts now', async ({ limiter, lastsMs }) => {
  const { clock, quota } = quotaOn(database, limiter)
  await quota.limit('key', { rate: 7 })
  clock.advance(lastsMs)
  const look = { limit: 10, remaining: 10, reset: clock.ms, used: 0, start: clock.ms }
  expect(await quota.getRemaining('key')).toEqual(look)
})

test('the next period of a calendar starts at the end of the last one', async () => {
  const { clock, quota } = quotaOn(database, TEN['calendar month'])
  await quota.limit('key', { rate: 7 })
  clock.ms = JANUARY.end - 1
  expect(await quota.getRemaining('key')).toMatchObject({ used: 7, start: JANUARY.start, reset: JANUARY.end })
  clock.advance(1)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 0, start: JANUARY.end, reset: JANUARY.end })
})
