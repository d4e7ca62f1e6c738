import { describe, expect, test } from 'vitest'
import { type Limiter, Ratelimit } from '../../../src/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { Model } from '../../support/model.ts'
import { HOUR_MS, kinds, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const MAX_RATE = Number.MAX_SAFE_INTEGER

describe.each(kinds)('$name', ({ name, plan, limiter, debtsEnd }) => {
  test.each([
    { before: 8, rate: 5, debt: 3 },
    { before: 10, rate: 1, debt: 1 },
    { before: 0, rate: 25, debt: 15 },
  ])('after $before takes $rate, and others wait until the debt is paid', async ({ before, rate, debt }) => {
    const { clock, quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: before })
    const forced = await quota.limit('key', { rate, force: true })
    expect(forced).toMatchObject({ success: true, limit: 10, remaining: 0, retryAfter: 0 })
    expect(await quota.getRemaining('key')).toMatchObject({
      used: 10 + debt,
      remaining: 0,
      reset: forced.reset,
    })

    const model = new Model()
    model.limit(plan, clock.ms, before)
    model.limit(plan, clock.ms, rate, { force: true })
    const { retryAfter } = model.limit(plan, clock.ms, 1)
    // A debt is paid back one an hour, or is forgotten with its window.
    const paidBack = retryAfter === (debt + 1) * HOUR_MS
    expect(paidBack ? 'by refills' : 'with the window').toBe(debtsEnd)
    expect(await quota.limit('key')).toMatchObject({ success: false, remaining: 0, retryAfter })
    clock.advance(retryAfter - 1)
    expect(await quota.limit('key')).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await quota.limit('key')).toMatchObject({ success: true })
  })

  test('a debt is gone at reset', async () => {
    const { clock, quota } = quotaOn(database, limiter)
    const { reset } = await quota.limit('key', { rate: 25, force: true })
    clock.ms = reset - 1
    expect((await quota.getRemaining('key')).remaining).toBeLessThan(10)
    clock.advance(1)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0, remaining: 10 })
  })

  test('a debt outlives cleanup', async () => {
    const { clock, quota } = quotaOn(database, limiter)
    const { reset } = await quota.limit('key', { rate: 25, force: true })
    clock.ms = reset - 1
    expect(await quota.cleanup()).toBe(0)
  })

  test('a refund pays a debt first', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 15, force: true })
    expect(await quota.limit('key', { rate: -4 })).toMatchObject({ success: true, remaining: 0 })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 11 })
    expect(await quota.limit('key', { rate: -4 })).toMatchObject({ success: true, remaining: 3 })
  })

  test('many forced calls at once: each answer has what is left after it', async () => {
    const { db, statements } = watch(database.db)
    const { quota } = quotaOn(database, limiter, { db })
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => quota.limit('key', { rate: 4, force: true })),
    )
    // One finds no row, one makes it. What a lockout is charged may start a block, so each is decided alone.
    expect(statements).toHaveLength(name === 'lockout' ? 6 : 2)
    expect(answers.map(({ success }) => success)).toEqual([true, true, true, true, true])
    expect(answers.map(({ remaining }) => remaining)).toEqual([6, 2, 0, 0, 0])
    const { used, reset } = await quota.getRemaining('key')
    expect(used).toBe(20)
    expect(answers.at(-1)?.reset).toBe(reset)
  })

  test('forced and ordinary calls of one rate are decided in their order', async () => {
    const { quota } = quotaOn(database, limiter)
    const answers = await Promise.all([
      quota.limit('key', { rate: 6 }),
      quota.limit('key', { rate: 6 }),
      quota.limit('key', { rate: 6, force: true }),
      quota.limit('key', { rate: 6 }),
    ])
    expect(answers.map(({ success, remaining }) => [success, remaining])).toEqual([
      [true, 4],
      [false, 4],
      [true, 0],
      [false, 0],
    ])
  })

  test('a forced call that fits is taken like any other', async () => {
    const { quota } = quotaOn(database, limiter)
    const plain = await quota.limit('plain', { rate: 10 })
    expect(await quota.limit('forced', { rate: 10, force: true })).toEqual(plain)
    expect(await quota.getRemaining('forced')).toEqual(await quota.getRemaining('plain'))
  })

  test.each([0, -3, -1e9])('force changes nothing for a rate of %d', async (rate) => {
    for (const used of [0, 5, 15]) {
      const { quota, rows } = quotaOn(database, limiter)
      const states: unknown[] = []
      for (const force of [false, true]) {
        const key = `${force}`
        if (used > 0) await quota.limit(key, { rate: used, force: true })
        states.push([await quota.limit(key, { rate, force }), await quota.getRemaining(key)])
      }
      expect(states[1]).toEqual(states[0])
      if (used === 0) expect(await rows()).toEqual([])
    }
  })

  test('a rollback undoes a debt', async () => {
    const { quota, rows } = quotaOn(database, limiter)
    await undone(database.db, async (tx) => {
      expect(await quota.limit('key', { rate: 25, force: true, tx })).toMatchObject({ success: true })
      expect(await quota.limit('key', { tx })).toMatchObject({ success: false })
    })
    expect(await rows()).toEqual([])
  })

  test('a debt that cannot be counted is refused, and nothing is charged', async () => {
    const { quota, rows } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 5 })
    const forced = (rate: number, key = 'key') => quota.limit(key, { rate, force: true })
    const before = await rows()
    await expect(forced(MAX_RATE)).rejects.toMatchObject({ code: 'COUNT_OVERFLOW' })
    await expect(
      database.db.transaction((tx) => quota.limit('key', { rate: MAX_RATE, force: true, tx })),
    ).rejects.toMatchObject({ code: 'COUNT_OVERFLOW' })
    expect(await rows()).toEqual(before)

    const atOnce = await Promise.allSettled(Array.from({ length: 3 }, () => forced(2 ** 52)))
    expect(atOnce.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected'])
    expect(await quota.getRemaining('key')).toMatchObject({ used: 2 ** 52 + 5, remaining: 0 })
    expect(await forced(MAX_RATE - 2 ** 52 - 5)).toMatchObject({ success: true, remaining: 0 })
    await expect(forced(1)).rejects.toMatchObject({ code: 'COUNT_OVERFLOW' })

    // A call of the same statement that fits is charged.
    expect(await forced(MAX_RATE, 'other')).toMatchObject({ success: true })
    await quota.limit('key', { rate: -(MAX_RATE - 5) })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 5, remaining: 5 })
  })

  test('a cost that cannot be counted is refused, and can be committed again', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 3 })
    const reserved = allowed(await quota.reserve('key', { rate: 2 }))
    await expect(reserved.commit(MAX_RATE)).rejects.toMatchObject({ code: 'COUNT_OVERFLOW' })
    expect(await reserved.commit(4)).toMatchObject({ success: true })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 7 })
  })
})

describe('huge debts end', () => {
  const fast: Record<string, Limiter> = {
    'interval bucket': Ratelimit.tokenBucket(MAX_RATE, '1s', MAX_RATE),
    'continuous bucket': Ratelimit.tokenBucket(MAX_RATE, '1s', MAX_RATE, { refill: 'continuous' }),
  }
  test.each(Object.entries({ ...TEN, ...fast }))('%s', async (_, limiter) => {
    const { clock, quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: MAX_RATE, force: true })
    const { retryAfter } = await quota.limit('key')
    expect(retryAfter).toBeLessThan(Number.POSITIVE_INFINITY)
    clock.advance(retryAfter)
    expect(await quota.limit('key')).toMatchObject({ success: true })
  })
})

test('a blocked key goes into debt', async () => {
  for (const limiter of [Ratelimit.fixedWindow(0, '10h'), Ratelimit.slidingWindow(0, '10h')]) {
    const { quota } = quotaOn(database, limiter)
    expect(await quota.limit('key', { rate: 3, force: true })).toMatchObject({ success: true, remaining: 0 })
    expect(await quota.getRemaining('key')).toMatchObject({ limit: 0, used: 3, remaining: 0 })
  }
})

test('an upgrade ends a debt', async () => {
  const { quota } = quotaOn(database, Ratelimit.fixedWindow(10, '10h'))
  await quota.limit('key', { rate: 25, force: true })
  const limiter = Ratelimit.fixedWindow(100, '10h')
  expect(await quota.limit('key', { limiter })).toMatchObject({ success: true, remaining: 74 })
})

test('force does not spread to another key in the same statement', async () => {
  const { quota } = quotaOn(database, TEN['fixed window'])
  const answers = await Promise.all([
    quota.limit('a', { rate: 11, force: true }),
    quota.limit('b', { rate: 11 }),
  ])
  expect(answers.map(({ success }) => success)).toEqual([true, false])
})

test('a remembered denial does not answer a forced call', async () => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, TEN['fixed window'], { db, inMemoryBlock: true })
  await quota.limit('key', { rate: 10 })
  expect(await quota.limit('key')).toMatchObject({ success: false })
  expect(await quota.limit('key')).toMatchObject({ success: false })
  expect(statements).toHaveLength(3)
  expect(await quota.limit('key', { force: true })).toMatchObject({ success: true })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 11 })
})
