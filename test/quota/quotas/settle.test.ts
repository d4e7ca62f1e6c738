import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Database, type Limiter, Ratelimit } from '../../../src/index.ts'
import { parseDuration } from '../../../src/kernel/duration.ts'
import { Quota, type QuotaConfig, reserveAll } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { uncounted } from '../../support/limits.ts'
import { kinds, oneOfEachKind, type QuotaUnderTest, quotaOn, TEN } from '../../support/ten.ts'
import { watch } from '../../support/watch.ts'

// Settling under another plan, another limiter and other options than those that charged the estimate. What
// settling does is tested in reserve.test.ts, and that a name does it once in named.test.ts.

const database = useDatabase()
const REFUSED = { code: 'INVALID_OPTION' }
const NAME = { key: 'key', id: 'job' }
const NAMED = { id: 'job', expires: '10m' } as const

interface Processes extends QuotaUnderTest {
  /** Shares nothing with `quota` but the configuration and the tables. */
  readonly other: Quota
}

function processes(limiter: Limiter, options: Partial<QuotaConfig> = {}): Processes {
  const one = quotaOn(database, limiter, options)
  return { ...one, other: new Quota(one.config) }
}

/** What settles an estimate in each way, under a plan. */
const ways: readonly ((
  each: Processes,
  rate: number,
  plan: Limiter,
) => Promise<(actual: number) => Promise<unknown>>)[] = [
  async ({ quota }, rate, limiter) => {
    const reserved = allowed(await quota.reserve('key', { rate }))
    return (actual) => reserved.commit(actual, { limiter })
  },
  async ({ quota, other }, rate, limiter) => {
    await quota.reserve('key', { rate, ...NAMED })
    return (actual) => other.settle(NAME, actual, { limiter })
  },
  async ({ quota: ratelimit }, rate, limiter) => {
    const reserved = allowed(await reserveAll([{ ratelimit, key: 'key', rate }]))
    return (actual) => reserved.commit([actual], { limiters: [limiter] })
  },
]

describe('after a change of plan, under the present one', () => {
  const changes = [
    { from: calendarWindow(10, 'day'), to: calendarWindow(1000, 'month'), passes: '1d' },
    { from: Ratelimit.fixedWindow(10, '1h'), to: Ratelimit.fixedWindow(1000, '1d'), passes: '2h' },
    { from: calendarWindow(10, 'month'), to: Ratelimit.tokenBucket(1, '10d', 1000), passes: '1h' },
    { from: Ratelimit.tokenBucket(1, '1d', 10), to: Ratelimit.slidingWindow(1000, '10d'), passes: '1h' },
  ] as const

  test.each(changes)('$from.algorithm.name to $to.algorithm.name', async ({ from, to, passes }) => {
    for (const reserve of ways) {
      const each = processes(from)
      const { clock, quota } = each
      const settle = await reserve(each, 4, to)
      await quota.limit('key', { rate: 500, limiter: to })
      clock.advance(parseDuration(passes, 'It'))
      const { used } = await quota.getRemaining('key', { limiter: to })
      await settle(6)
      expect(await quota.getRemaining('key', { limiter: to })).toMatchObject({ used: used + 2 })
    }
  })

  const fractions = [...kinds.filter(({ takesFractions }) => takesFractions), ...uncounted]
  const wholes = oneOfEachKind.filter(({ takesFractions }) => !takesFractions)
  const roundings = fractions.flatMap((from) =>
    wholes.map((to) => ({ from, to, change: `${from.name}, then ${to.name}` })),
  )

  test.each(roundings)('a missing fraction is rounded up for whole units, $change', async ({ from, to }) => {
    for (const reserve of ways) {
      for (const [actual, more] of [
        [4, 2],
        [3, 1],
        [2, 0],
        [0, 0],
      ] as const) {
        const each = processes(from.limiter)
        const settle = await reserve(each, 2.7, to.limiter)
        await each.quota.limit('key', { rate: 3, limiter: to.limiter })
        await settle(actual)
        expect(await each.quota.getRemaining('key', { limiter: to.limiter })).toMatchObject({
          used: 3 + more,
        })
      }
    }
  })
})

test('a settling reports crossed thresholds, once', async () => {
  const { quota, other } = processes(TEN['fixed window'], { thresholds: [0.5, 0.8, 1] })
  await quota.limit('key', { rate: 4 })
  await quota.reserve('key', { rate: 6, ...NAMED })
  expect(await other.settle(NAME, 4)).toMatchObject({ crossed: [0.5, 0.8] })
  expect(await other.settle(NAME, 4)).not.toHaveProperty('crossed')
  expect(await quota.limit('key', { rate: 2 })).toMatchObject({ crossed: [1] })
})

test('thresholds of a settled estimate are shares of the plan that it was reserved under', async () => {
  const { quota } = processes(TEN['fixed window'], { thresholds: [0.5] })
  const reserved = allowed(await quota.reserve('key', { rate: 6 }))
  const limiter = Ratelimit.fixedWindow(100, '10h')
  expect(await reserved.commit(6, { limiter })).toMatchObject({ limit: 100, crossed: [0.5] })
})

test('a window without a limit settles the count, and crosses nothing', async () => {
  const limiter = Ratelimit.fixedWindow(Number.POSITIVE_INFINITY, '1h')
  const { quota, other } = processes(limiter, { thresholds: [0.8] })
  await quota.reserve('key', { rate: 4, ...NAMED })
  const settled = await other.settle(NAME, 5)
  expect(settled).toMatchObject({ limit: Number.POSITIVE_INFINITY })
  expect(settled).not.toHaveProperty('crossed')
  expect(await quota.getRemaining('key')).toMatchObject({ used: 5 })
})

test('an upgrade to unlimited refuses no cost', async () => {
  const { quota, other } = processes(TEN['fixed window'])
  const limiter = Ratelimit.unlimited()
  await quota.reserve('key', { rate: 4, ...NAMED })
  expect(await other.settle(NAME, 6, { limiter })).toMatchObject({ success: true })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
})

test('a reservation without a limit leaves the reservations of others under a limit', async () => {
  const limiter = TEN['calendar month']
  for (const actual of [4, 0]) {
    const { quota, other, rows } = processes(limiter)
    await quota.reserve('key', { rate: 4, limiter: Ratelimit.unlimited(), ...NAMED })
    await quota.reserve('key', { rate: 5 })
    const before = await rows()
    expect(await other.settle(NAME, actual, { limiter })).toMatchObject({ remaining: 5 })
    expect(await rows()).toEqual(before)
  }
})

test('several of one key at once are each settled by themselves', async () => {
  const { quota, other } = processes(TEN['fixed window'])
  const ids = ['1', '2', '3', '4', '5']
  await Promise.all(ids.map((id) => quota.reserve('key', { rate: 2, id, expires: '1h' })))
  await Promise.all(ids.map((id) => other.settle({ key: 'key', id }, 1)))
  expect(await quota.getRemaining('key')).toMatchObject({ used: 5 })
})

/** So many that its arithmetic is another one. */
const LARGE = Ratelimit.slidingWindow(Number.MAX_SAFE_INTEGER, '10h')

test('a sliding window of many settles what a small one has charged', async () => {
  const { quota, config } = processes(TEN['sliding window'])
  await quota.reserve('key', { rate: 4, ...NAMED })
  await new Quota({ ...config, limiter: LARGE } as QuotaConfig).settle(NAME, 1)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 1 })
})

test('any key and any id come back as they were, long ones too', async () => {
  const { quota, other } = processes(TEN['fixed window'])
  const names = ['"\\\n', 'ключ 🗝', 'a/b', '\u0001'.repeat(300), '€'.repeat(100)]
  for (const [place, key] of names.entries()) {
    const id = names.at(place - 1) as string
    await quota.reserve(key, { rate: 4, id, expires: '1h' })
    await other.settle({ key, id }, 1)
    expect(await quota.getRemaining(key)).toMatchObject({ used: 1 })
  }
})

test('a dry run gives back nothing for a call that it let pass', async () => {
  for (const actual of [0, 9]) {
    const { quota, other, rows } = processes(TEN['fixed window'], { dryRun: true })
    await quota.limit('key', { rate: 8 })
    const before = await rows()
    const reserved = await quota.reserve('key', { rate: 4, ...NAMED })
    expect(reserved).toMatchObject({ wouldDeny: { success: false } })
    expect(await other.settle(NAME, actual)).toMatchObject({ success: true, remaining: 2 })
    expect(await rows()).toEqual(before)
  }
})

describe('during an outage that onError allows', () => {
  /** A reservation whose charge met the driver's error. */
  async function reservedDuring(code: string) {
    let failures = 1
    const driver = () =>
      Promise.reject(new Error('Failed query', { cause: Object.assign(new Error(code), { code }) }))
    const { db } = watch(database.db, () => failures-- > 0 && driver())
    const each = processes(TEN['fixed window'], { db, onError: 'allow', cleanupProbability: 0 })
    const reserved = allowed(await each.quota.reserve('key', { rate: 4 }))
    expect(reserved).toMatchObject({ degraded: true })
    return { ...each, reserved }
  }

  test('the whole cost is charged later', async () => {
    const { quota, reserved } = await reservedDuring('ECONNREFUSED')
    await reserved.commit(3)
    expect(await quota.getRemaining('key')).toMatchObject({ used: 3 })
  })

  test.each([
    { actual: 3, used: 5 },
    { actual: 6, used: 7 },
  ])(
    'a reservation that may have been charged is neither charged twice nor given back, $actual',
    async (each) => {
      const { quota, reserved } = await reservedDuring('ECONNRESET')
      await quota.limit('key', { rate: 5 })
      await reserved.commit(each.actual)
      expect(await quota.getRemaining('key')).toMatchObject({ used: each.used })
    },
  )
})

test.each<[string, Partial<QuotaConfig>]>([
  ['another prefix', { prefix: 'stranger' }],
  ['the other table', { durable: true }],
])('a limiter of %s finds no reservation', async (_, options) => {
  const { config, quota } = processes(TEN['fixed window'])
  await quota.reserve('key', { rate: 4, ...NAMED })
  const stranger = new Quota({ ...config, ...options } as QuotaConfig)
  await expect(stranger.settle(NAME, 1)).rejects.toMatchObject({ code: 'NOT_RESERVED' })
  expect(await quota.settle(NAME, 1)).toMatchObject({ remaining: 9 })
})

test('a limiter of another algorithm needs the present limiter', async () => {
  const { config, quota } = processes(TEN['fixed window'])
  await quota.reserve('key', { rate: 4, ...NAMED })
  const stranger = new Quota({ ...config, limiter: TEN['sliding window'] } as QuotaConfig)
  await expect(stranger.settle(NAME, 1)).rejects.toMatchObject({ code: 'OTHER_PLAN' })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
  expect(await stranger.settle(NAME, 1, { limiter: TEN['fixed window'] })).toMatchObject({ remaining: 9 })
})

describe('refused before any SQL', () => {
  /** An open reservation, and a limiter in another process whose statements are seen. */
  async function open() {
    const { config, quota } = processes(TEN['fixed window'])
    const reserved = allowed(await quota.reserve('key', { rate: 4, ...NAMED }))
    const { db, statements } = watch(database.db)
    const other = new Quota({ ...config, db } as QuotaConfig)
    return { quota, reserved, statements, other }
  }

  test.each([-1, Number.NaN, 1.5, Number.POSITIVE_INFINITY, null, '5', [], true, new Date(0)])(
    'a cost of %s',
    async (cost) => {
      const { quota, reserved, statements, other } = await open()
      const actual = cost as unknown as number
      expect(await errorOf(() => other.settle(NAME, actual))).toMatchObject({ code: 'INVALID_RATE' })
      expect(await errorOf(() => reserved.commit(actual))).toMatchObject({ code: 'INVALID_RATE' })
      expect(statements).toEqual([])
      expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
    },
  )

  test('an invalid limiter, and an invalid tx', async () => {
    const { statements, other } = await open()
    for (const options of [{ limiter: {} as Limiter }, { tx: database.db as Database }]) {
      expect(await errorOf(() => other.settle(NAME, 1, options))).toMatchObject(REFUSED)
    }
    expect(statements).toEqual([])
  })

  test('a text, or anything else that is no name', async () => {
    const { reserved, statements, other } = await open()
    for (const given of ['job', '', 7, undefined, null, reserved, []]) {
      const name = given as unknown as typeof NAME
      expect(await errorOf(() => other.settle(name, 1))).toMatchObject(REFUSED)
    }
    expect(statements).toEqual([])
  })
})

test('a limiter that became unlimited settles its earlier reservation', async () => {
  const { quota, config } = processes(TEN['fixed window'])
  await quota.reserve('key', { rate: 4, ...NAMED })
  const unlimited = new Quota({ ...config, limiter: Ratelimit.unlimited() })
  expect(await unlimited.settle(NAME, 1)).toMatchObject({ success: true })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 4 })
})

test('a limiter that is limited again does not settle an estimate that was never charged', async () => {
  const { quota, config } = processes(TEN['fixed window'])
  const unlimited = new Quota({ ...config, limiter: Ratelimit.unlimited() })
  await unlimited.reserve('key', { rate: 4, ...NAMED })
  expect(await quota.settle(NAME, 4)).toMatchObject({ success: true })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
})

test('a settling under another algorithm reports no thresholds', async () => {
  const { quota, other } = processes(TEN['interval bucket'], { thresholds: [0.5] })
  await quota.reserve('key', { rate: 6, ...NAMED })
  const settled = await other.settle(NAME, 6, { limiter: TEN['fixed window'] })
  expect(settled).not.toHaveProperty('crossed')
})

test('an estimate that a bucket paid up to its tolerance counts as paid under every plan', async () => {
  const { quota, other } = processes(Ratelimit.tokenBucket(1, '1h', 3))
  await quota.limit('key', { rate: 4e-10 })
  await quota.limit('key', { rate: 4e-10 })
  const reserved = await quota.reserve('key', { rate: 3, atLeast: 1, ...NAMED })
  expect(allowed(reserved).granted).toBeLessThan(3)
  expect(await other.settle(NAME, 3, { limiter: TEN['fixed window'] })).toMatchObject({ remaining: 10 })
})

test('a settling ends the remembered denial', async () => {
  const { quota } = processes(TEN['fixed window'], { inMemoryBlock: true })
  await quota.reserve('key', { rate: 10, ...NAMED })
  expect(await quota.limit('key')).toMatchObject({ success: false })
  await quota.settle(NAME, 0)
  expect(await quota.limit('key')).toMatchObject({ success: true, remaining: 9 })
})
