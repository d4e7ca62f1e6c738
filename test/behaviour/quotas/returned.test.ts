import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { kinds, quotaOn, TEN } from '../../support/ten.ts'

const database = useDatabase()

/** What a list of answers says of how much was given back. */
function returnedOf(answers: readonly object[]): unknown[] {
  return answers.map((answer) => ('returned' in answer ? answer.returned : undefined))
}

describe.each(kinds)('a refund says how much it gave back: $name', ({ limiter }) => {
  test('all of it, or as much as was used', async () => {
    const { quota } = quotaOn(database, limiter)
    const charged = await quota.limit('key', { rate: 7 })
    const refunds = [await quota.limit('key', { rate: -3 }), await quota.limit('key', { rate: -5 })]
    const unused = await quota.limit('key', { rate: -2 })
    const unknown = await quota.limit('another key', { rate: -2 })
    expect(returnedOf([charged, ...refunds, unused, unknown])).toEqual([undefined, 3, 4, 0, 0])
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
  })

  test('refunds of one statement do not count the same units twice', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 5 })
    const refunds = await Promise.all([1, 2, 3].map(() => quota.limit('key', { rate: -2 })))
    expect(returnedOf(refunds)).toEqual([2, 2, 1])
  })

  test('of a debt', async () => {
    const { quota } = quotaOn(database, limiter)
    await quota.limit('key', { rate: 25, force: true })
    expect(returnedOf([await quota.limit('key', { rate: -100 })])).toEqual([25])
  })

  test('in limitAll, and nothing if another limit denies', async () => {
    const { quota, clock } = quotaOn(database, limiter)
    const other = quotaOn(database, TEN['fixed window'], { clock: clock.now }).quota
    await quota.limit('key', { rate: 5 })
    const refunds = [-2, -4, 1].map((rate) => ({ ratelimit: quota, key: 'key', rate }))
    const tooMuch = await limitAll([...refunds, { ratelimit: other, key: 'key', rate: 11 }])
    expect(returnedOf(tooMuch.results)).toEqual([0, 0, undefined, undefined])
    const { results } = await limitAll([...refunds, { ratelimit: other, key: 'key' }])
    expect(returnedOf(results)).toEqual([2, 3, undefined, undefined])
    expect(await quota.getRemaining('key')).toMatchObject({ used: 1 })
  })

  test('a reservation that is released, or has cost less', async () => {
    const { quota } = quotaOn(database, limiter)
    const reserve = async () => {
      const reserved = allowed(await quota.reserve('key', { rate: 4 }))
      return reserved
    }
    const [one, other] = [await reserve(), await reserve()]
    expect(returnedOf([await one.commit(1), await other.release()])).toEqual([3, 4])
    const [exact, more] = [await reserve(), await reserve()]
    expect(returnedOf([await exact.commit(4), await more.commit(5)])).toEqual([undefined, undefined])
    const forgiven = await quota.reserve('key', { rate: 0 })
    if (forgiven.success) expect(returnedOf([await forgiven.release()])).toEqual([undefined])
  })
})

test('fractions of a bucket', async () => {
  const { quota } = quotaOn(database, TEN['continuous bucket'])
  for (const rate of [0.1, 0.1, 0.1]) await quota.limit('key', { rate })
  expect(returnedOf([await quota.limit('key', { rate: -0.3 })])).toEqual([0.3])
})

describe('after the window that paid', () => {
  test('a reservation gives nothing back', async () => {
    const { quota, clock } = quotaOn(database, TEN['calendar month'])
    const reserved = await quota.reserve('key', { rate: 4 })
    clock.ms = Date.UTC(2026, 1, 1)
    await quota.limit('key', { rate: 6 })
    if (reserved.success) expect(returnedOf([await reserved.release()])).toEqual([0])
    expect(await quota.getRemaining('key')).toMatchObject({ used: 6 })
  })

  test('reservations that are settled together give nothing back, and the first answer of a row says so', async () => {
    const { quota, clock } = quotaOn(database, TEN['calendar month'])
    const balance = creditsOn(database, { clock: clock.now }).credits
    await balance.grant('key', 10)
    const requests = [quota, balance, balance].map((ratelimit) => ({ ratelimit, key: 'key', rate: 3 }))
    const reserved = await reserveAll(requests)
    clock.ms = Date.UTC(2026, 1, 1)
    if (!reserved.success) throw new Error('denied')
    expect(returnedOf(await reserved.commit([1, 1, 2]))).toEqual([0, 3, 0])
  })

  test('spend gives the credits back, and nothing to the month', async () => {
    const { quota, clock } = quotaOn(database, calendarWindow(10, 'month'))
    const balance = creditsOn(database, { clock: clock.now }).credits
    await balance.grant('key', 100)
    const requests = [quota, balance].map((ratelimit) => ({ ratelimit, key: 'key' }))
    const [inTime, late] = [await spend(requests, { rate: 8 }), await spend(requests, { rate: 8 })]
    expect(await inTime.release()).toMatchObject({ results: [{ returned: 8 }, {}] })
    clock.ms = Date.UTC(2026, 1, 1)
    await quota.limit('key', { rate: 9 })
    expect(await late.release()).toMatchObject({
      granted: [2, 0],
      results: [{ returned: 0 }, { returned: 6 }],
    })
    expect([await quota.getRemaining('key'), await balance.getRemaining('key')]).toMatchObject([
      { used: 9 },
      { used: 0 },
    ])
    const denied = await spend(requests, { rate: 1000 })
    expect(await denied.release()).toMatchObject({ granted: [0, 0] })
  })
})

test('an unlimited plan has nothing to give back', async () => {
  const { quota } = quotaOn(database, Ratelimit.unlimited())
  expect(returnedOf([await quota.limit('key', { rate: -5 })])).toEqual([0])
  const { results } = await limitAll([{ ratelimit: quota, key: 'key', rate: -5 }])
  expect(returnedOf(results)).toEqual([0])
})
