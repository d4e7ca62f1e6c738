import { describe, expect, expectTypeOf, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import {
  type Allowed,
  type Denied,
  type Granted,
  limitAll,
  Ratelimit,
  type RatelimitConfig,
} from '../../../src/index.ts'
import { reserveAll } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { uncounted } from '../../support/limits.ts'
import { kinds, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

describe.each(kinds)('$name', ({ limiter, takesFractions }) => {
  test.each([
    { left: 10, granted: 6, remaining: 4 },
    { left: 6, granted: 6, remaining: 0 },
    { left: 5, granted: 5, remaining: 0 },
    { left: 2, granted: 2, remaining: 0 },
  ])('of $left left it takes $granted', async ({ left, granted, remaining }) => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 10 - left })
    const answer = await quota.limit('key', { rate: 6, atLeast: 2 })
    expect(answer).toMatchObject({ success: true, granted, limit: 10, remaining, retryAfter: 0 })
    const { used, reset } = await quota.getRemaining('key')
    expect([used, reset]).toEqual([10 - remaining, answer.reset])
  })

  test('a call with less left is denied until there is enough, to the millisecond, and writes nothing', async () => {
    const { clock, quota, rows } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 9 })
    const stored = await rows()
    const denied = await quota.limit('key', { rate: 6, atLeast: 2 })
    expect(denied).toMatchObject({ success: false, remaining: 1 })
    expect(denied).not.toHaveProperty('granted')
    expect(denied.retryAfter).toBe((await quota.limit('key', { rate: 2 })).retryAfter)
    expect(await rows()).toEqual(stored)
    clock.advance(denied.retryAfter - 1)
    expect(await quota.limit('key', { rate: 6, atLeast: 2 })).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await quota.limit('key', { rate: 6, atLeast: 2 })).toMatchObject({ success: true })
  })

  test('a call in debt is denied until there is enough', async () => {
    const { clock, quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 10 })
    await quota.limit('key', { rate: 7, force: true })
    const denied = await quota.limit('key', { rate: 6, atLeast: 2 })
    expect(denied).toEqual(await quota.limit('key', { rate: 2 }))
    clock.advance(denied.retryAfter - 1)
    expect(await quota.limit('key', { rate: 6, atLeast: 2 })).toMatchObject({ success: false, retryAfter: 1 })
    clock.advance(1)
    expect(await quota.limit('key', { rate: 6, atLeast: 2 })).toMatchObject({ success: true })
  })

  test('a rate above the limit takes all of it, and an atLeast above the limit is never granted', async () => {
    const { quota } = quotaOn(database, limiter)
    const never = await quota.limit('key', { rate: 400, atLeast: 11 })
    expect(never).toMatchObject({ success: false, retryAfter: Infinity })
    expect(await quota.limit('key', { rate: 400, atLeast: 1 })).toMatchObject({ granted: 10, remaining: 0 })
  })

  test('equal calls at once each get the rest after the one before', async () => {
    const { db, statements } = watch(database.db)
    const { quota } = quotaOn(database, limiter, { db })
    await quota.limit('key', { rate: 1 })
    statements.length = 0
    const asked = Array.from({ length: 5 }, () => quota.limit('key', { rate: 4, atLeast: 1 }))
    const answers = await Promise.all(asked)
    expect(statements).toHaveLength(1)
    expect(answers.map((answer) => (answer.success ? answer.granted : 0))).toEqual([4, 4, 1, 0, 0])
    expect(answers.map(({ remaining }) => remaining)).toEqual([5, 1, 0, 0, 0])
    expect(await quota.getRemaining('key')).toMatchObject({ used: 10 })
  })

  test('equal calls at once never get less than atLeast', async () => {
    const { quota } = quotaOn(database, limiter)
    const asked = Array.from({ length: 4 }, () => quota.limit('key', { rate: 4, atLeast: 3 }))
    const answers = await Promise.all(asked)
    expect(answers.map((answer) => (answer.success ? answer.granted : 0))).toEqual([4, 4, 0, 0])
    expect(await quota.getRemaining('key')).toMatchObject({ used: 8 })
  })

  test('calls of many keys share a statement, also with calls without atLeast next to them', async () => {
    const { quota } = quotaOn(database, limiter)
    for (const left of [10, 3, 1]) await quota.limit(`${left}`, { rate: 10 - left })
    const answers = await Promise.all([
      quota.limit('10', { rate: 4, atLeast: 2 }),
      quota.limit('3', { rate: 4, atLeast: 3 }),
      quota.limit('1', { rate: 4, atLeast: 2 }),
      quota.limit('new', { rate: 11, atLeast: 5 }),
      quota.limit('plain', { rate: 4 }),
    ])
    expect(answers.map((answer) => answer.success && answer.granted)).toEqual([4, 3, false, 10, undefined])
  })

  test('calls with and without atLeast share a statement, and each takes what it takes alone', async () => {
    const answersTo = async (options: Partial<RatelimitConfig>, isTogether: boolean) => {
      const { quota } = quotaOn(database, limiter, options)
      const keys = ['plain', 'full', 'part', 'none', 'gone']
      for (const [place, rate] of [4, 4, 7, 9, 10].entries()) await quota.limit(`${keys[place]}`, { rate })
      const calls = [
        () => quota.limit('plain', { rate: 6 }),
        () => quota.limit('full', { rate: 6, atLeast: 2 }),
        () => quota.limit('part', { rate: 6, atLeast: 2 }),
        () => quota.limit('none', { rate: 6, atLeast: 2 }),
        () => quota.limit('gone'),
      ]
      const answers = []
      if (isTogether) answers.push(...(await Promise.all(calls.map((call) => call()))))
      else for (const call of calls) answers.push(await call())
      return { answers, left: await quota.getRemainingAll(keys) }
    }
    const { db, statements } = watch(database.db)
    const together = await answersTo({ db }, true)
    expect(together).toEqual(await answersTo({}, false))
    // Those that use something up first, these, and the look.
    expect(statements).toHaveLength(5 * 2 + 1 + 1)
  })

  test('a reservation commits and releases the granted part', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 4 })
    const reserved = await quota.reserve('key', { rate: 400, atLeast: 1 })
    if (!reserved.success) throw new Error('denied')
    expect(reserved.granted).toBe(6)
    await reserved.commit(2)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 6 })
    const other = await quota.reserve('key', { rate: 400, atLeast: 1 })
    if (!other.success) throw new Error('denied')
    await other.release()
    expect(await quota.getRemaining('key')).toMatchObject({ used: 6 })
  })

  test('a call in debt takes nothing', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 12, force: true })
    expect(await quota.limit('key', { rate: 3, atLeast: 1 })).toMatchObject({ success: false })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 12 })
  })

  test.runIf(takesFractions)('takes a fraction', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 9.25 })
    expect(await quota.limit('key', { rate: 4, atLeast: 0.5 })).toMatchObject({ granted: 0.75 })
  })

  test('a rollback undoes it', async () => {
    const { quota } = quotaOn(database, limiter)
    await undone(database.db, async (tx) => {
      expect(await quota.limit('key', { rate: 400, atLeast: 1, tx })).toMatchObject({ granted: 10 })
    })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
  })
})

test.each([0.3, 0.7])(
  'of tenths that do not add up to %d, no call is granted more or less than one',
  async (units) => {
    const { quota } = quotaOn(database, Ratelimit.tokenBucket(0.1, '1h', units))
    const tenth = async (key: string) => {
      const answer = await quota.limit(key, { rate: 0.1, atLeast: 0.1 })
      return answer.success && answer.granted
    }
    const expected = [...Array(Math.round(units * 10)).fill(0.1), false]
    const alone = []
    for (const _ of expected) alone.push(await tenth('alone'))
    expect(alone).toEqual(expected)
    expect(await Promise.all(expected.map(() => tenth('at once')))).toEqual(expected)
  },
)

test.each(uncounted)('$name grants all of the rate', async ({ limiter }) => {
  const { quota } = quotaOn(database, limiter)
  expect(await quota.limit('key', { rate: 400, atLeast: 1 })).toMatchObject({ success: true, granted: 400 })
})

test('a remembered denial answers only calls that need as much', async () => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, TEN['fixed window'], { db, inMemoryBlock: true })
  await quota.limit('key', { rate: 8 })
  expect(await quota.limit('key', { rate: 8, atLeast: 3 })).toMatchObject({ success: false })
  statements.length = 0
  expect(await quota.limit('key', { rate: 5, atLeast: 3 })).toMatchObject({ success: false })
  expect(statements).toHaveLength(0)
  expect(await quota.limit('key', { rate: 5, atLeast: 2 })).toMatchObject({ granted: 2 })
})

test('a dry run grants all of the rate and charges nothing that it would deny', async () => {
  const { quota } = quotaOn(database, TEN['fixed window'], { dryRun: true })
  await quota.limit('key', { rate: 8 })
  const passed = await quota.limit('key', { rate: 5, atLeast: 3 })
  expect(passed).toMatchObject({ success: true, granted: 5, wouldDeny: { success: false, remaining: 2 } })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 8 })
})

test('a list takes what is left of one limit and the rate of the others, or nothing', async () => {
  const { quota: first, clock, config } = quotaOn(database, TEN['calendar month'])
  const { quota: second } = quotaOn(database, TEN['fixed window'], { clock: clock.now })
  const dated = new Credits({
    ...{ db: database.db, dated: true, prefix: `${config.prefix}, dated`, clock: clock.now },
  })
  await dated.grant('key', 10, { id: 'payment' })
  const part = { key: 'key', rate: 6, atLeast: 2 }
  const take = () =>
    limitAll([
      { ratelimit: first, ...part },
      { ratelimit: dated, ...part },
      { ratelimit: second, key: 'key', rate: 3 },
    ])
  const granted = async () => (await take()).results.map((answer) => answer.success && answer.granted)
  expect(await granted()).toEqual([6, 6, undefined])
  expect(await granted()).toEqual([4, 4, undefined])
  expect(await take()).toMatchObject({ success: false, results: [{}, {}, { remaining: 4 }] })
  expect(await second.getRemaining('key')).toMatchObject({ used: 6 })
})

test('an estimate of several takes what is left, and gives back what was not needed', async () => {
  const { quota, clock } = quotaOn(database, TEN['calendar month'])
  const { quota: other } = quotaOn(database, TEN['fixed window'], { clock: clock.now })
  await quota.limit('key', { rate: 7 })
  const reserved = await reserveAll([
    { ratelimit: quota, key: 'key', rate: 5, atLeast: 1 },
    { ratelimit: other, key: 'key', rate: 5 },
  ])
  if (!reserved.success) throw new Error('denied')
  expect(reserved.results).toMatchObject([{ granted: 3, remaining: 0 }, { remaining: 5 }])
  await reserved.commit([2, 5])
  expect(await quota.getRemaining('key')).toMatchObject({ used: 9 })
})

test('two requests for one row cannot take what is left', async () => {
  const { db, statements } = watch(database.db)
  const { quota: ratelimit } = quotaOn(database, TEN['fixed window'], { db })
  const requests = [
    { ratelimit, key: 'key', rate: 5, atLeast: 1 },
    { ratelimit, key: 'key' },
  ]
  await expect(limitAll(requests)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(statements).toEqual([])
})

test('the granted part crosses thresholds, not the rate', async () => {
  const { quota } = quotaOn(database, TEN['calendar month'], { thresholds: [0.5, 1] })
  await quota.limit('key', { rate: 2 })
  expect(await quota.limit('key', { rate: 3, atLeast: 1 })).toMatchObject({ granted: 3, crossed: [0.5] })
  expect(await quota.limit('key', { rate: 30, atLeast: 1 })).toMatchObject({ granted: 5, crossed: [1] })
})

test.each([
  { rate: 4, atLeast: 5, code: 'INVALID_RATE' },
  { rate: 4, atLeast: 0, code: 'INVALID_RATE' },
  { rate: 4, atLeast: -1, code: 'INVALID_RATE' },
  { rate: 4, atLeast: Number.NaN, code: 'INVALID_RATE' },
  { rate: 4, atLeast: 1.5, code: 'INVALID_RATE' },
  { rate: 0, atLeast: 0, code: 'INVALID_RATE' },
  { rate: -4, atLeast: -4, code: 'INVALID_RATE' },
  { rate: 4, atLeast: 2, force: true, code: 'INVALID_OPTION' },
])('%o is refused before any SQL', async ({ code, ...options }) => {
  const { db, statements } = watch(database.db)
  const { quota } = quotaOn(database, TEN['fixed window'], { db })
  await expect((async () => quota.limit('key', options))()).rejects.toMatchObject({ code })
  expect(statements).toEqual([])
})

test('with atLeast an allowed answer is typed to have what was granted', async () => {
  const quota = new Ratelimit({ db: database.db, limiter: TEN['fixed window'], prefix: 'typed' })
  const part = () => quota.limit('key', { rate: 4, atLeast: 1 })
  expectTypeOf(part).returns.resolves.toEqualTypeOf<(Allowed & Granted) | Denied>()
})
