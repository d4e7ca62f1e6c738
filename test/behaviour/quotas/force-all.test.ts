import { describe, expect, test } from 'vitest'
import type { Credits } from '../../../src/credits/index.ts'
import { type CreditRequest, type Limiter, limitAll, Ratelimit } from '../../../src/index.ts'
import type { Quota, QuotaConfig } from '../../../src/quota/index.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { HOUR_MS, kinds, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const credits = { name: 'credits', limiter: 'credits' } as const
const window = TEN['fixed window']

/** Ten credits. */
async function tenCredits() {
  const { credits, ...under } = creditsOn(database)
  await credits.grant('key', 10)
  return { ...under, quota: credits }
}

/** A quota of ten. */
async function ten(limiter: Limiter | 'credits' = window, options: Partial<QuotaConfig> = {}) {
  const under = limiter === 'credits' ? await tenCredits() : quotaOn(database, limiter, options)
  const used = async () => (await under.quota.getRemaining('key')).used
  /** Rates of one row in their order; those of text are forced. */
  const all = (...rates: (number | `${number}`)[]) =>
    limitAll(
      rates.map(
        (rate): CreditRequest => ({
          ...{ ratelimit: under.quota, key: 'key' },
          ...(typeof rate === 'string' ? { rate: Number(rate), force: true } : { rate }),
        }),
      ),
    )
  return { ...under, used, all }
}

describe.each([...kinds, credits])('$name', ({ limiter }) => {
  test('a forced call is charged together with the others, into debt', async () => {
    const [one, other] = [await ten(limiter), await ten()]
    await one.quota.limit('key', { rate: 8 })
    const forced = { ratelimit: one.quota, key: 'key', rate: 5, force: true }
    const { success, denied, retryAfter, results } = await limitAll([
      forced,
      { ratelimit: other.quota, key: 'key', rate: 4 },
    ])
    expect({ success, denied, retryAfter }).toEqual({ success: true, denied: [], retryAfter: 0 })
    expect(results).toMatchObject([{ success: true, limit: 10, remaining: 0 }, { remaining: 6 }])
    const { reset, ...left } = await one.quota.getRemaining('key')
    expect(left).toMatchObject({ used: 13, remaining: 0 })
    expect(results[0]?.reset).toBe(reset)
    expect(await other.used()).toBe(4)
  })

  test('a forced call is answered as by limit, on new keys too', async () => {
    const [alone, together] = [await ten(limiter), await ten(limiter)]
    for (const rate of [4, 9, 1]) {
      const answer = await alone.quota.limit('key', { rate, force: true })
      const { results } = await limitAll([{ ratelimit: together.quota, key: 'key', rate, force: true }])
      expect(results).toEqual([answer])
    }
    expect(await together.quota.getRemaining('key')).toEqual(await alone.quota.getRemaining('key'))
  })

  test('if another call is denied, nothing is charged, and the forced call has the present numbers', async () => {
    const [one, other] = [await ten(limiter), await ten()]
    await one.quota.limit('key', { rate: 8 })
    const before = await one.rows()
    const denying = { ratelimit: other.quota, key: 'key', rate: 11 }
    const { success, denied, results } = await limitAll([
      { ratelimit: one.quota, key: 'key', rate: 5, force: true },
      { ratelimit: one.quota, key: 'new', rate: 25, force: true },
      denying,
    ])
    expect({ success, denied }).toEqual({ success: false, denied: [denying] })
    const look = await one.quota.limit('key', { rate: 0 })
    expect(results[0]).toEqual(look)
    expect(results[1]).toMatchObject({ success: true })
    expect(await one.rows()).toEqual(before)
  })

  test('on one row the other calls have to fit after the forced calls before them', async () => {
    const fits = async (used: number, ...rates: (number | `${number}`)[]) => {
      const { all, quota, used: after } = await ten(limiter)
      await quota.limit('key', { rate: used })
      const { success } = await all(...rates)
      const sum = rates.reduce<number>((total, rate) => total + Number(rate), used)
      expect(await after()).toBe(success ? Math.max(sum, 0) : used)
      return success
    }
    expect(await fits(6, 4, '7')).toBe(true)
    expect(await fits(6, '7', 4)).toBe(false)
    expect(await fits(6, '3', 1)).toBe(true)
    expect(await fits(6, '3', 2)).toBe(false)
    expect(await fits(6, '1', 2, '9', 1, '9')).toBe(false)
    expect(await fits(4, 2, '2', 2, '9')).toBe(true)
    // Refunds count first.
    expect(await fits(6, '3', 2, -1)).toBe(true)
    expect(await fits(6, 5, '9', -1)).toBe(true)
    expect(await fits(6, 6, '9', -1)).toBe(false)
    expect(await fits(6, '3', -5)).toBe(true)
    expect(await fits(6, '5', -5)).toBe(true)
    expect(await fits(10, '5', 0)).toBe(true)
  })

  test('refunds count first, one after the other, and their excess is lost', async () => {
    for (const [used, ...rates] of [
      [2, -10, '5'],
      [0, -5, '9'],
      [0, -1000, 1000],
      [0, -1000, '1000', 1],
      [4, -3, 5, -3, '2'],
      [9, 4, -6, 4, 3],
      [9, 4, -6, 4, 4],
      [25, -5, 3],
      [25, -20, 6],
      [25, -20, 5],
      [25, -20, '4'],
    ] as const) {
      for (const agesMs of [[], [6 * HOUR_MS, 9 * HOUR_MS]]) {
        const [one, other] = [await ten(limiter), await ten(limiter)]
        for (const { quota, clock } of [one, other]) {
          await quota.limit('key', { rate: used, force: true })
          for (const ageMs of agesMs) {
            clock.advance(ageMs)
            await quota.limit('key', { rate: 1, force: true })
          }
        }
        const before = await one.rows()
        const answer = await one.all(...rates)
        const isAllowed = await afterOneAnother(other.quota, rates)
        expect({ used, rates, isAllowed: answer.success }).toEqual({ used, rates, isAllowed })
        if (isAllowed) {
          expect(await one.quota.getRemaining('key')).toEqual(await other.quota.getRemaining('key'))
          continue
        }
        const { remaining } = await one.quota.getRemaining('key')
        expect(answer.results.map((result) => result.remaining)).toEqual(rates.map(() => remaining))
        expect(await one.rows()).toEqual(before)
        if (answer.retryAfter === Number.POSITIVE_INFINITY) continue
        one.clock.advance(answer.retryAfter - 1)
        expect(await one.all(...rates)).toMatchObject({ success: false, retryAfter: 1 })
        one.clock.advance(1)
        expect(await one.all(...rates)).toMatchObject({ success: true })
      }
    }
  })

  test('if another call is denied, a refund is not made either, and has the present numbers', async () => {
    const { all, quota, rows } = await ten(limiter)
    await quota.limit('key', { rate: 8 })
    const before = await rows()
    const { denied, results } = await all(-5, 0, 20)
    expect(denied).toMatchObject([{ rate: 20 }])
    expect(results).toMatchObject([
      { success: true, remaining: 2, retryAfter: 0 },
      { success: true, remaining: 2, retryAfter: 0 },
      { success: false, remaining: 2, retryAfter: Number.POSITIVE_INFINITY },
    ])
    expect(await rows()).toEqual(before)
  })
})

/** Makes the calls one after the other, refunds first; says whether all were allowed. */
async function afterOneAnother(
  quota: Pick<Quota, 'limit'> | Credits,
  rates: readonly (number | `${number}`)[],
) {
  let isAllowed = true
  for (const rate of rates.toSorted((one, other) => Number(Number(other) < 0) - Number(Number(one) < 0))) {
    const { success } = await quota.limit('key', { rate: Number(rate), force: typeof rate === 'string' })
    isAllowed &&= success
  }
  return isAllowed
}

test('a charge of refunded units crosses no threshold a second time', async () => {
  const { all, quota } = await ten(window, { thresholds: [0.5, 0.8, 1] })
  await quota.limit('key', { rate: 6 })
  expect((await all(-4, 5)).results).toMatchObject([{ remaining: 3 }, { remaining: 3 }])
  expect((await all(-4, 4)).results.some((result) => 'crossed' in result)).toBe(false)
  expect((await all(-4, 5)).results[0]).toMatchObject({ crossed: [0.8] })
})

test('an estimate keeps no charge in the same list from crossing a threshold', async () => {
  const { all, quota } = await ten(TEN['calendar month'], { thresholds: [0.2] })
  await quota.reserve('key', { rate: 6 })
  expect((await all(-1, 2)).results[0]).toMatchObject({ crossed: [0.2] })
})

test('refunds whose sum is too large are refused before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const { all } = await ten(window, { db })
  await expect(all(-Number.MAX_SAFE_INTEGER, -1, 1)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  expect(statements).toEqual([])
})

test('calls of one row that are not forced are denied together, with the time until all of them fit', async () => {
  const { all, clock, quota } = await ten(TEN['interval bucket'])
  await quota.limit('key', { rate: 6 })
  const { denied, results, retryAfter } = await all('3', 2, '50')
  expect(denied).toMatchObject([{ rate: 2 }])
  expect(results.map(({ success }) => success)).toEqual([true, false, true])
  expect(results[0]).toMatchObject({ remaining: 4 })
  clock.advance(retryAfter - 1)
  expect(await all('3', 2, '50')).toMatchObject({ success: false, retryAfter: 1 })
  clock.advance(1)
  expect(await all('3', 2, '50')).toMatchObject({ success: true })
})

test('a call after a forced one that leaves it no room is denied forever', async () => {
  const { all } = await ten()
  expect(await all('10', 1)).toMatchObject({ success: false, retryAfter: Number.POSITIVE_INFINITY })
})

test('a dry run charges forced calls, but none that it would deny', async () => {
  const { all, used } = await ten(window, { dryRun: true, thresholds: [0.5, 1] })
  const { success, results } = await all(9, '6', 2)
  expect(success).toBe(true)
  expect(results).toMatchObject([
    { wouldDeny: { success: false, remaining: 10 } },
    { success: true, remaining: 4, crossed: [0.5] },
    { wouldDeny: { success: false, remaining: 10 } },
  ])
  expect(results[1]).not.toHaveProperty('wouldDeny')
  expect(await used()).toBe(6)
})

test('a dry run makes refunds, but no charge that it would deny', async () => {
  const { all, used, quota } = await ten(window, { dryRun: true })
  await quota.limit('key', { rate: 8 })
  const { success, results } = await all(-5, 20)
  expect(success).toBe(true)
  expect(results).toMatchObject([{ remaining: 7 }, { wouldDeny: { success: false, remaining: 2 } }])
  expect(results[0]).not.toHaveProperty('wouldDeny')
  expect(await used()).toBe(3)
  const forced = await all(-2, 20, '3', 0)
  expect(forced.results).toMatchObject([
    { remaining: 6 },
    { wouldDeny: {} },
    { remaining: 6 },
    { remaining: 6 },
  ])
  expect(forced.results.filter((result) => 'wouldDeny' in result)).toHaveLength(1)
  expect(await used()).toBe(4)
})

test('the first answer of a row has the thresholds and the ended period', async () => {
  const { all, clock } = await ten(window, { thresholds: [0.5, 1] })
  const opened = await all('8', '1')
  expect(opened.results).toMatchObject([{ remaining: 1, crossed: [0.5] }, { remaining: 1 }])
  expect((await all(1, '8')).results).toMatchObject([{ crossed: [1] }, {}])
  clock.ms = opened.results[0]?.reset ?? 0
  const { results } = await all('1', 1)
  expect(results).toMatchObject([{ ended: { used: 18 } }, { remaining: 8 }])
  expect(results[1]).not.toHaveProperty('ended')
})

test('a call without a limit may be forced too', async () => {
  const { quota } = quotaOn(database, Ratelimit.unlimited())
  const request = { ratelimit: quota, key: 'key', rate: 5, force: true }
  expect(await limitAll([request])).toMatchObject({ success: true })
})

test('a rollback undoes it', async () => {
  const { quota, used } = await ten()
  await undone(database.db, async (tx) => {
    await limitAll([{ ratelimit: quota, key: 'key', rate: 25, force: true }], { tx })
  })
  expect(await used()).toBe(0)
})

test('forced calls whose sum is too large are refused before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const { all } = await ten(window, { db })
  const large = `${Number.MAX_SAFE_INTEGER}` as const
  await expect(all(large, large, -Number.MAX_SAFE_INTEGER)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  expect(statements).toEqual([])
})

test.each([
  [Number.MAX_SAFE_INTEGER, 5],
  [1, Number.MAX_SAFE_INTEGER],
])(
  'a forced call of %i after %i cannot be counted: it is refused, and nothing is charged',
  async (rate, used) => {
    const [one, other] = [await ten(), await ten(TEN['calendar month'])]
    await one.quota.limit('key', { rate: used, force: true })
    const requests = [
      { ratelimit: other.quota, key: 'new' },
      { ratelimit: one.quota, key: 'key', rate, force: true },
    ]
    const code = 'COUNT_OVERFLOW'
    await expect(limitAll(requests)).rejects.toMatchObject({ code })
    await database.db.transaction(async (tx) => {
      await expect(limitAll(requests, { tx })).rejects.toMatchObject({ code })
    })
    expect(await one.used()).toBe(used)
    expect(await other.rows()).toEqual([])
  },
)

test('with forced calls, lists and single checks at once, calls without force stay within the limit', async () => {
  const [one, other] = [await ten(), await ten(TEN['calendar month'])]
  const force = { ratelimit: one.quota, key: 'key', force: true }
  const plain = { ratelimit: other.quota, key: 'key' }
  let [forced, taken] = [0, 0]
  const works = Array.from({ length: 30 }, async (_, place) => {
    if (place % 3 === 2) {
      if ((await other.quota.limit('key')).success) taken++
    } else if ((await limitAll(place % 3 === 0 ? [force, plain] : [plain, force])).success) {
      forced++
      taken++
    }
  })
  await Promise.all(works)
  expect(taken).toBe(10)
  expect(await one.used()).toBe(forced)
  expect(await other.used()).toBe(10)
})

test('a dry run leaves no row for a refund to a new key', async () => {
  const { all, rows } = await ten(window, { dryRun: true })
  await all(-5, 20)
  expect(await rows()).toEqual([])
})
