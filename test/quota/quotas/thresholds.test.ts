import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import {
  type Allowed,
  type Limiter,
  type LimitResult,
  limitAll,
  Ratelimit,
  type Reservation,
} from '../../../src/index.ts'
import { Quota, reserveAll, type Threshold } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'
import { HOUR_MS, JANUARY, kinds, type QuotaUnderTest, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const BOTH = { thresholds: [0.8, 1] }

function crossedBy(answer: LimitResult): readonly Threshold[] {
  // A call that crosses nothing reports nothing.
  expect(answer).not.toMatchObject({ crossed: [] })
  return (answer.success && answer.crossed) || []
}

/** What each of some calls has crossed, one after the other. */
async function crossings({ quota }: Pick<QuotaUnderTest, 'quota'>, rates: readonly number[]) {
  const crossed: (readonly Threshold[])[] = []
  for (const rate of rates) crossed.push(crossedBy(await quota.limit('key', { rate })))
  return crossed
}

async function reserve(quota: Quota, rate: number): Promise<Allowed & Reservation> {
  const reserved = await quota.reserve('key', { rate })
  expect(crossedBy(reserved)).toEqual([])
  if (!reserved.success) throw new Error('denied')
  return reserved
}

const NOTHING = { estimate: 0, more: 0, settledAt: 0 }
const ones = Array.from({ length: 11 }, () => 1)

describe.each(kinds)('$name', ({ limiter, of, keeps, crossesOncePerPeriod: remembers }) => {
  test('the call that reaches a share crosses it, and no other call does', async () => {
    const crossed = await crossings(quotaOn(database, limiter, BOTH), ones)
    expect(crossed).toEqual([...Array(7).fill([]), [0.8], [], [1], []])
  })

  test('one of equal calls at once crosses it', async () => {
    const { db, statements } = watch(database.db)
    const { quota } = quotaOn(database, limiter, { ...BOTH, db })
    const answers = await Promise.all(ones.map(() => quota.limit('key')))
    expect(statements).toHaveLength(2)
    expect(answers.map(crossedBy)).toEqual([...Array(7).fill([]), [0.8], [], [1], []])
  })

  test.each([
    { rates: [10], crossed: [[0.8, 1]] },
    { rates: [8, 2], crossed: [[0.8], [1]] },
    { rates: [3, 3, 3, 1], crossed: [[], [], [0.8], [1]] },
    { rates: [7, 3], crossed: [[], [0.8, 1]] },
    { rates: [7, 4, 0, 1], crossed: [[], [], [], [0.8]] },
  ])('rates of $rates cross the shares that they reach', async ({ rates, crossed }) => {
    expect(await crossings(quotaOn(database, limiter, BOTH), rates)).toEqual(crossed)
  })

  test('the call that reaches an amount that is used or left crosses it', async () => {
    const [used, left, none] = [{ used: 4 }, { left: 3 }, { left: 0 }]
    const { quota } = quotaOn(database, limiter, { thresholds: [used, left, none, 0.4] })
    const first = [...Array(3).fill([]), [used, 0.4], [], [], [left], [], [], [none], []]
    expect(await crossings({ quota }, ones)).toEqual(first)
  })

  test('what is left counts from the limit of the plan, and what is used does not', async () => {
    const [used, left] = [{ used: 20 }, { left: 60 }]
    const { quota } = quotaOn(database, limiter, { thresholds: [used, left] })
    const larger = of(100, '1h').limiter
    const spend = async (rate: number) => crossedBy(await quota.limit('key', { rate, limiter: larger }))
    expect([await spend(19), await spend(1), await spend(19), await spend(1)]).toEqual([
      [],
      [used],
      [],
      [left],
    ])
  })

  test('a threshold beyond the limit is crossed by debt, also by equal calls at once', async () => {
    const { quota } = quotaOn(database, limiter, { thresholds: [1, 1.5, 3] })
    expect(crossedBy(await quota.limit('key', { rate: 9 }))).toEqual([])
    const rate = 3
    const answers = await Promise.all([1, 2, 3].map(() => quota.limit('key', { rate, force: true })))
    expect(answers.map(crossedBy)).toEqual([[1], [1.5], []])
    expect(crossedBy(await quota.limit('key', { rate: 50, force: true }))).toEqual([3])
  })

  test('after a rollback a share is crossed again', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    await quota.limit('key', { rate: 7 })
    await undone(database.db, async (tx) => {
      expect(crossedBy(await quota.limit('key', { rate: 2, tx }))).toEqual([0.8])
      expect(crossedBy(await quota.limit('key', { tx }))).toEqual([1])
    })
    expect(await crossings({ quota }, [1, 1, 1])).toEqual([[0.8], [], [1]])
  })

  test('refunded units that are used again cross again, but once a period in a calendar', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    expect(await crossings({ quota }, [8, -3, 3, 2, -10, 10])).toEqual([
      ...[[0.8], [], remembers ? [] : [0.8], [1], []],
      remembers ? [] : [0.8, 1],
    ])
  })

  test('equal calls at once that use refunded units cross again in the same way', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    await crossings({ quota }, [9, -4])
    const answers = await Promise.all([1, 2, 3, 4, 5].map(() => quota.limit('key')))
    expect(answers.map(crossedBy)).toEqual([[], [], remembers ? [] : [0.8], [], [1]])
  })

  test('shares are crossed again when the limit was whole again', async () => {
    const { clock, quota } = quotaOn(database, limiter, BOTH)
    for (let period = 0; period < 3; period++) {
      const { reset } = await quota.limit('key', { rate: 0 })
      clock.ms = Math.max(reset, clock.ms)
      expect(await crossings({ quota }, [5, 3, 2])).toEqual([[], [0.8], [1]])
    }
  })

  test('the shares of a plan are shares of its own limit', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    const larger = of(100, '1h').limiter
    const calls: [number, Limiter][] =
      keeps === 'what is left'
        ? // A bucket stores what is left: eight of ten used are 98 of a hundred.
          [
            [8, limiter],
            [1, larger],
            [1, larger],
            [-90, larger],
            [69, larger],
            [1, larger],
          ]
        : [
            [8, limiter],
            [71, larger],
            [1, larger],
            [20, larger],
          ]
    const crossed: (readonly Threshold[])[] = []
    for (const [rate, plan] of calls)
      crossed.push(crossedBy(await quota.limit('key', { rate, limiter: plan })))
    expect(crossed).toEqual(
      keeps === 'what is left' ? [[0.8], [], [1], [], [], [0.8]] : [[0.8], [], [0.8], [1]],
    )
  })

  test('a denied call crosses nothing, and neither does a smaller plan', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    expect(await crossings({ quota }, [7, 4, 4, 2, 2])).toEqual([[], [], [], [0.8], []])
    const smaller = of(5, '1h').limiter
    for (const rate of [0, 2, -1]) {
      expect(crossedBy(await quota.limit('key', { rate, limiter: smaller }))).toEqual([])
    }
  })

  test('no denial crosses the limit, and the call that reaches it does', async () => {
    const { quota, rows } = quotaOn(database, limiter, BOTH)
    await quota.limit('key', { rate: 9 })
    const before = await rows()
    for (let times = 0; times < 3; times++) {
      const denied = await quota.limit('key', { rate: 2 })
      expect(denied.success).toBe(false)
      expect(denied).not.toHaveProperty('crossed')
    }
    // The answers are equal because no call has written anything.
    expect(await rows()).toEqual(before)
    expect(crossedBy(await quota.limit('key'))).toEqual([1])
  })

  test('limitAll reports the thresholds of each limit if all are consumed, and none if one denies', async () => {
    const { quota, config } = quotaOn(database, limiter, BOTH)
    await quota.limit('key', { rate: 8 })
    const silent = new Quota({ ...config, prefix: `${config.prefix} silent`, thresholds: [] })
    const requests = [
      { ratelimit: quota, key: 'key' },
      { ratelimit: silent, key: 'key', rate: 9 },
      { ratelimit: quota, key: 'other', rate: 10 },
    ]
    const denying = { ratelimit: silent, key: 'denies', rate: 11 }
    const denied = await limitAll([...requests, denying])
    expect(denied.success).toBe(false)
    // What was crossed before is not reported again.
    expect(denied.results.map(crossedBy)).toEqual([[], [], [], []])
    const { results } = await limitAll(requests)
    expect(results.map(crossedBy)).toEqual([[], [], [0.8, 1]])
    const again = await limitAll([{ ratelimit: quota, key: 'key' }])
    expect(again.results.map(crossedBy)).toEqual([[1]])
  })

  test('limitAll reports a row that it has twice once', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    const twice = { ratelimit: quota, key: 'key', rate: 4 }
    const { results } = await limitAll([twice, twice])
    expect(results.flatMap(crossedBy)).toEqual([0.8])
  })

  test('refunded units that limitAll uses again cross in the same way', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    const rates = [9, -4, 4, 1]
    const told: (readonly Threshold[])[] = []
    for (const rate of rates) {
      const { results } = await limitAll([{ ratelimit: quota, key: 'key', rate }])
      told.push(results.flatMap(crossedBy))
    }
    expect(told).toEqual([[0.8], [], remembers ? [] : [0.8], [1]])
  })

  test.each([
    { estimate: 8, actual: 8, crossed: [0.8] },
    { estimate: 8, actual: 7, crossed: [] },
    { estimate: 4, actual: 12, crossed: [0.8, 1] },
    { estimate: 8, actual: 12, crossed: [0.8, 1] },
    { estimate: 10, actual: 9, crossed: [0.8] },
    { estimate: 0, actual: 8, crossed: [0.8] },
    { estimate: 10, actual: 0, crossed: [] },
  ])('a commit of $actual for an estimate of $estimate crosses $crossed', async (each) => {
    const { quota } = quotaOn(database, limiter, BOTH)
    const reserved = await reserve(quota, each.estimate)
    expect(crossedBy(await reserved.commit(each.actual))).toEqual(each.crossed)
    const rest = [0.8, 1].filter((share) => !each.crossed.includes(share))
    expect(await crossings({ quota }, [10 - Math.min(each.actual, 10) || 1])).toEqual([
      each.actual < 10 ? rest : [],
    ])
  })

  test('an unused part of an estimate crosses a share when it is used later', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    await crossings({ quota }, [5])
    const reserved = await reserve(quota, 4)
    expect(crossedBy(await reserved.commit(1))).toEqual([])
    expect(await crossings({ quota }, [1, 1, 1, 1])).toEqual([[], [0.8], [], [1]])
  })

  test('a release crosses nothing', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    for (let again = 0; again < 2; again++) {
      const reserved = await reserve(quota, 10)
      expect(crossedBy(await reserved.release())).toEqual([])
    }
    expect(await crossings({ quota }, [8])).toEqual([[0.8]])
  })

  test('reserveAll crosses nothing, and its commit does', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    const request = { ratelimit: quota, key: 'key', rate: 5 }
    const reserved = allowed(await reserveAll([request, request]))
    expect(reserved.results.map(crossedBy)).toEqual([[], []])
    await reserved.release()
    expect(await crossings({ quota }, [8, 2])).toEqual([[0.8], [1]])
  })

  test('one of equal reservations that are settled at once crosses', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    const all = await Promise.all([2, 2, 2, 2, 2].map((rate) => reserve(quota, rate)))
    const answers = await Promise.all(all.map((reserved) => reserved.commit(2)))
    expect(answers.flatMap(crossedBy).toSorted()).toEqual([0.8, 1])
  })

  test('after the rollback of a commit the next call crosses the share', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    const reserved = await reserve(quota, 7)
    await undone(database.db, async (tx) => {
      expect(crossedBy(await reserved.commit(8, { tx }))).toEqual([0.8])
    })
    const next = await reserve(quota, 1)
    // The cost of the first estimate is unknown.
    expect(crossedBy(await next.commit(1))).toEqual(remembers ? [] : [0.8])
  })

  test('shares are crossed with open reservations too', async () => {
    const { quota } = quotaOn(database, limiter, BOTH)
    const reserved = await reserve(quota, 8)
    // A calendar knows that two are settled.
    expect(await crossings({ quota }, [1, 1])).toEqual([[], remembers ? [] : [1]])
    expect(crossedBy(await reserved.commit(8))).toEqual(remembers ? [0.8, 1] : [0.8])
  })

  test('without refunds each share is crossed once, in any order of settlings', async () => {
    const shares = Array.from({ length: 12 }, (_, i) => (i + 1) / 10)
    const anyUse = fc.record({ estimate: fc.nat(3), more: fc.nat(2), settledAt: fc.nat(8) })
    await fc.assert(
      fc.asyncProperty(fc.array(anyUse, { minLength: 1, maxLength: 8 }), async (uses) => {
        const { quota } = quotaOn(database, limiter, { thresholds: shares })
        const open: { reserved: Allowed & Reservation; actual: number; settledAt: number }[] = []
        const told: Threshold[] = []
        let used = 0
        for (const [place, { estimate, more, settledAt }] of [...uses, ...Array(9).fill(NOTHING)].entries()) {
          for (const each of open.filter((one) => one.settledAt === place)) {
            told.push(...crossedBy(await each.reserved.commit(each.actual)))
          }
          const reserved = await quota.reserve('key', { rate: estimate })
          expect(crossedBy(reserved)).toEqual([])
          if (!reserved.success) continue
          used += estimate + more
          open.push({ reserved, actual: estimate + more, settledAt: place + 1 + settledAt })
        }
        for (const each of open.filter((one) => one.settledAt > uses.length + 8)) {
          told.push(...crossedBy(await each.reserved.commit(each.actual)))
        }
        expect(told.toSorted()).toEqual(shares.filter((share) => Math.round(share * 10) <= used).toSorted())
      }),
      runs(30),
    )
  })
})

test.each(kinds.filter(({ keeps }) => keeps === 'what was used'))(
  'a downgrade crosses nothing, and a look in its transaction has the reached shares: $name',
  async ({ limiter, of }) => {
    const { quota } = quotaOn(database, limiter, BOTH)
    await quota.limit('key', { rate: 7 })
    const smaller = of(7, '1h').limiter
    const { used, limit } = await database.db.transaction((tx) =>
      quota.getRemaining('key', { tx, limiter: smaller }),
    )
    expect(used / limit).toBe(1)
    const denied = await quota.limit('key', { limiter: smaller })
    expect(denied.success).toBe(false)
    expect(denied).not.toHaveProperty('crossed')
  },
)

test('shares of a sliding window are crossed again as soon as enough has faded', async () => {
  const { clock, quota } = quotaOn(database, TEN['sliding window'], BOTH)
  expect(await crossings({ quota }, [8])).toEqual([[0.8]])
  clock.advance(10 * HOUR_MS + 5 * HOUR_MS)
  // Four are left of the eight.
  expect(await crossings({ quota }, [3, 1])).toEqual([[], [0.8]])
})

test('shares of a bucket are crossed again as soon as one unit has come back', async () => {
  const { clock, quota } = quotaOn(database, TEN['interval bucket'], BOTH)
  expect(await crossings({ quota }, [8])).toEqual([[0.8]])
  clock.advance(HOUR_MS)
  expect(await crossings({ quota }, [1])).toEqual([[0.8]])
})

test('shares in a calendar are crossed once a period, also after an upgrade and back', async () => {
  const { quota } = quotaOn(database, TEN['calendar month'], BOTH)
  const limiter = calendarWindow(100, 'month')
  expect(crossedBy(await quota.limit('key', { rate: 9 }))).toEqual([0.8])
  expect(crossedBy(await quota.limit('key', { rate: 5, limiter }))).toEqual([])
  await quota.limit('key', { rate: -14 })
  expect(await crossings({ quota }, [8, 2])).toEqual([[], []])
})

test('shares in a calendar are crossed in each period', async () => {
  const { clock, quota } = quotaOn(database, TEN['calendar month'], BOTH)
  clock.ms = JANUARY.end - 1
  expect(await crossings({ quota }, [9])).toEqual([[0.8]])
  clock.advance(1)
  expect(await crossings({ quota }, [7, 1, 1, 1])).toEqual([[], [0.8], [], [1]])
})

describe('a share that is not an exact number', () => {
  // 0.07 * 100 is more than 7, and 0.55 * 1e8 more than 55,000,000. Every such share of these limits is here.
  // Any share of 9e15 may be off, because the next double is a unit away.
  const percents = [1, 7, 14, 27, 28, 29, 51, 54, 55, 56, 57, 58, 63, 67, 83, 99]

  test.each([100, 1e8, 1e12, 9e15])('is crossed by the right unit, of %d', async (tokens) => {
    const windows = kinds.filter(({ debtsEnd }) => debtsEnd === 'with the window')
    const limiters = [
      ...windows.map(({ of }) => of(tokens, '1h').limiter),
      Ratelimit.tokenBucket(tokens, '10h', tokens),
    ]
    for (const limiter of limiters) {
      const { quota } = quotaOn(database, limiter, { thresholds: percents.map((percent) => percent / 100) })
      let used = 0
      for (const percent of percents) {
        const units = (tokens / 100) * percent
        expect(await crossings({ quota }, [units - 1 - used, 1])).toEqual([[], [percent / 100]])
        used = units
      }
    }
  })

  test('is crossed by fractions that add up to it', async () => {
    const { quota } = quotaOn(database, Ratelimit.tokenBucket(1, '1h', 1), { thresholds: [0.3, 0.8] })
    const crossed = await crossings({ quota }, Array(10).fill(0.1))
    expect(crossed).toEqual([[], [], [0.3], [], [], [], [], [0.8], [], []])
  })
})

test('an unlimited or blocked plan crosses nothing', async () => {
  for (const limiter of [Ratelimit.unlimited(), Ratelimit.fixedWindow(0, '1d')]) {
    const { quota } = quotaOn(database, limiter, BOTH)
    expect(crossedBy(await quota.limit('key', { rate: 10 }))).toEqual([])
  }
})

test('another limiter of the same rows has thresholds of its own', async () => {
  const { quota, config } = quotaOn(database, TEN['calendar month'], { thresholds: [0.5] })
  const other = new Quota({ ...config, thresholds: [0.5, 0.6, 1] })
  expect(crossedBy(await quota.limit('key', { rate: 5 }))).toEqual([0.5])
  expect(crossedBy(await other.limit('key', { rate: 5 }))).toEqual([0.6, 1])
})

test('a later change of the list changes no thresholds', async () => {
  const thresholds = [0.8]
  const { quota } = quotaOn(database, TEN['fixed window'], { thresholds })
  thresholds[0] = 0.1
  expect(await crossings({ quota }, [7, 1])).toEqual([[], [0.8]])
})

test('a window without a limit crosses what is used, and never what is left', async () => {
  const thresholds = [0.8, { used: 10 }, { left: 1e15 }]
  const { quota } = quotaOn(database, Ratelimit.fixedWindow(Number.POSITIVE_INFINITY, '1d'), { thresholds })
  expect(await crossings({ quota }, [9, 1, 1e6])).toEqual([[], [{ used: 10 }], []])
})

test('a threshold that is given twice is reported once', async () => {
  const { quota, config } = quotaOn(database, TEN['fixed window'], { thresholds: [{ used: 5 }, { used: 5 }] })
  const other = new Quota({ ...config, thresholds: [{ used: 5 }] })
  expect(crossedBy(await quota.limit('key', { rate: 5 }))).toEqual([{ used: 5 }])
  const both = [quota, other].map((ratelimit) => ({ ratelimit, key: 'other', rate: 3 }))
  const { results } = await limitAll(both)
  expect(results.flatMap(crossedBy)).toEqual([{ used: 5 }])
})

test.each([
  ...[0, -0.1, 10, 80, Number.NaN, Number.POSITIVE_INFINITY, '0.8', null, {}, [], [1]],
  ...[{ used: 0 }, { left: -1 }, { left: '5' }, { used: Number.NaN }, { used: 5, left: 5 }, { spent: 5 }],
] as never[])('%j is refused', (share) => {
  expect(() => quotaOn(database, TEN['fixed window'], { thresholds: [0.5, share] })).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION' }),
  )
})

test('thresholds that are not a list are refused', () => {
  expect(() => quotaOn(database, TEN['fixed window'], { thresholds: 0.8 as never })).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION' }),
  )
})
