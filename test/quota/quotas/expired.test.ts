import { ledger } from 'drizzle-ratelimit/ledger'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, Ratelimit } from '../../../src/index.ts'
import {
  openReservations,
  type QuotaConfig,
  type SettlePlansOptions,
  settleExpired,
} from '../../../src/quota/index.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { HOUR_MS, JANUARY, kinds, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

// Reservations with a name whose processes have died.

const database = useDatabase()
const MINUTE_MS = 60_000

function expiring(limiter: Limiter, options: Partial<QuotaConfig> = {}) {
  const under = quotaOn(database, limiter, options)
  const { quota } = under
  const reserve = (key: string, id: string, rate: number, expires: number | string = '10m') =>
    quota.reserve(key, { rate, id, expires: expires as '10m' })
  const end = (as: 'release' | 'charge', more: Partial<SettlePlansOptions> = {}) =>
    database.db.transaction((tx) => settleExpired(quota, { tx, as, ...more } as SettlePlansOptions))
  const list = (key?: string, limit = 100) => openReservations(quota, { key, limit })
  return { ...under, reserve, end, list }
}

test('it hands out corrections and thresholds, as any settlement does', async () => {
  const limiter = calendarWindow(100, 'month')
  const under = expiring(limiter, { keepEnded: true, grace: '1h', thresholds: [{ used: 20 }] } as never)
  const { quota, clock, reserve, end } = under
  await reserve('key', 'charged', 25)
  clock.advance(10 * MINUTE_MS)
  expect(await end('charge')).toMatchObject([{ returned: 0, crossed: [{ used: 20 }] }])
  clock.ms = JANUARY.end - MINUTE_MS
  await reserve('key', 'late', 40, '1m')
  clock.ms = JANUARY.end
  expect(await quota.limit('key')).toMatchObject({ ended: { used: 65, reserved: 40 } })
  expect(await end('release')).toMatchObject([
    { id: 'late', returned: 40, correction: { ...JANUARY, used: -40 } },
  ])
})

describe.each(kinds)('$name', ({ limiter }) => {
  test('what has expired is released, once, and the others stay', async () => {
    const { quota, clock, reserve, end, list } = expiring(limiter)
    const from = clock.ms
    await reserve('key', 'old', 4)
    await reserve('key', 'long', 3, '1h')
    clock.advance(10 * MINUTE_MS - 1)
    expect(await end('release')).toEqual([])
    clock.advance(1)
    const { used } = await quota.getRemaining('key')
    const expires = from + 10 * MINUTE_MS
    expect(await end('release')).toEqual([{ key: 'key', id: 'old', rate: 4, expires, returned: 4 }])
    expect(await end('release')).toEqual([])
    expect((await quota.getRemaining('key')).used).toBeCloseTo(used - 4, 9)
    expect(await list()).toEqual([{ key: 'key', id: 'long', rate: 3, expires: from + HOUR_MS }])
    expect(await quota.settle({ key: 'key', id: 'old' }, 0)).toMatchObject({ repeated: true })
    // A process that comes late learns that its cost was not counted.
    const late = quota.settle({ key: 'key', id: 'old' }, 2)
    await expect(late).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
  })

  test('or stays charged as a cost', async () => {
    const { quota, clock, reserve, end, list } = expiring(limiter)
    await reserve('key', 'old', 4)
    clock.advance(10 * MINUTE_MS)
    const before = await quota.getRemaining('key')
    expect(await end('charge')).toMatchObject([{ key: 'key', id: 'old', rate: 4, returned: 0 }])
    expect(await quota.getRemaining('key')).toEqual(before)
    expect(await list()).toEqual([])
    expect(await quota.settle({ key: 'key', id: 'old' }, 4)).toMatchObject({ repeated: true })
    await expect(quota.settle({ key: 'key', id: 'old' }, 0)).rejects.toMatchObject({
      code: 'ALREADY_SETTLED',
    })
  })

  test('a rollback opens them again', async () => {
    const { quota, clock, reserve, end, list } = expiring(limiter)
    await reserve('key', 'old', 4)
    clock.advance(10 * MINUTE_MS)
    const before = await quota.getRemaining('key')
    await undone(database.db, async (tx) => {
      expect(await settleExpired(quota, { tx, as: 'release' })).toHaveLength(1)
    })
    expect(await quota.getRemaining('key')).toEqual(before)
    expect(await list('key')).toHaveLength(1)
    expect(await end('release')).toHaveLength(1)
  })

  test('no cleanup takes them away', async () => {
    const { quota, clock, reserve, list } = expiring(limiter, { cleanupProbability: 1 })
    await reserve('key', 'old', 4)
    clock.advance(1000 * 24 * HOUR_MS)
    await quota.cleanup()
    await reserve('other', 'new', 4)
    expect(await list()).toMatchObject([{ id: 'old' }, { id: 'new' }])
  })
})

test('at most limit, those that ended first before the others', async () => {
  const { clock, reserve, end, list } = expiring(TEN['fixed window'])
  for (const i of [3, 1, 5, 2, 4]) await reserve(`key ${9 - i}`, `job ${i}`, 1, i * MINUTE_MS)
  expect((await list()).map(({ id }) => id)).toEqual(['job 1', 'job 2', 'job 3', 'job 4', 'job 5'])
  expect((await list(undefined, 2)).map(({ id }) => id)).toEqual(['job 1', 'job 2'])
  clock.advance(HOUR_MS)
  const idsOf = async (limit: number) => (await end('release', { limit })).map(({ id }) => id)
  expect(await idsOf(2)).toEqual(['job 2', 'job 1'])
  expect(await idsOf(10)).toEqual(['job 5', 'job 4', 'job 3'])
})

test('of one key, whatever other keys and ids look like', async () => {
  const { reserve, list, prefix } = expiring(TEN['fixed window'])
  const names = [
    ['a', 'b'],
    ['a', '/'],
    ['a/62', 'b'],
    ['a/', 'b'],
    ['a', 'ä🙂"\\ \n'],
    ['A', 'b'],
    ['a b', 'c'],
    ['%', '_'],
  ] as const
  for (const [key, id] of names)
    expect(await reserve(key, id, 1)).toMatchObject({ remaining: expect.any(Number) })
  for (const key of new Set(names.map(([each]) => each))) {
    const ids = names.filter(([each]) => each === key).map(([, id]) => id)
    expect((await list(key)).map(({ id }) => id).toSorted()).toEqual(ids.toSorted())
  }
  expect(await list()).toHaveLength(names.length)
  expect(await openReservations({ db: database.db, prefix: `${prefix} `, durable: false })).toEqual([])
})

test('a month that is over gets nothing back', async () => {
  const { quota, clock, reserve, end } = expiring(TEN['calendar month'])
  clock.ms = JANUARY.end - 1
  await reserve('key', 'old', 4, '1m')
  clock.advance(HOUR_MS)
  await quota.limit('key', { rate: 2 })
  expect(await end('release')).toMatchObject([{ rate: 4, returned: 0 }])
  expect(await quota.getRemaining('key')).toMatchObject({ used: 2 })
})

test('what is charged is not reserved any more, and crosses thresholds', async () => {
  const { quota, clock, reserve, end } = expiring(TEN['calendar month'], {
    keepEnded: true,
    thresholds: [0.5],
  })
  await reserve('key', 'charged', 4)
  await reserve('key', 'open', 2, '90d')
  clock.advance(HOUR_MS)
  await end('charge')
  clock.ms = JANUARY.end
  expect(await quota.limit('key')).toMatchObject({ ended: { used: 6, reserved: 2 } })
})

test('plans of their own need limiterOf', async () => {
  const { quota, clock, end, list } = expiring(TEN['fixed window'])
  const limiter = Ratelimit.fixedWindow(100, '10h')
  await quota.reserve('key', { rate: 40, id: 'job', expires: '1m', limiter })
  clock.advance(HOUR_MS)
  await expect(end('release')).rejects.toMatchObject({ code: 'OTHER_PLAN' })
  expect(await list()).toHaveLength(1)
  const plans: string[] = []
  const limiterOf = async (key: string) => {
    plans.push(key)
    return limiter
  }
  expect(await end('release', { limiterOf })).toMatchObject([{ returned: 40 }])
  expect(plans).toEqual(['key'])
  expect(await quota.getRemaining('key', { limiter })).toMatchObject({ used: 0 })
})

test('an unlimited plan, a dry run and a balance', async () => {
  const free = expiring(Ratelimit.unlimited())
  await free.reserve('key', 'job', 4)
  free.clock.advance(HOUR_MS)
  expect(await free.end('release')).toMatchObject([{ rate: 4, returned: 0 }])
  const dry = expiring(TEN['fixed window'], { dryRun: true })
  await dry.reserve('key', 'charged', 8)
  expect(await dry.reserve('key', 'passed', 8)).toHaveProperty('wouldDeny')
  expect(await dry.list()).toMatchObject([
    { id: 'charged', rate: 8 },
    { id: 'passed', rate: 0 },
  ])
  dry.clock.advance(HOUR_MS)
  expect(await dry.end('release')).toMatchObject([{ returned: 8 }, { returned: 0 }])
  expect(await dry.quota.getRemaining('key')).toMatchObject({ used: 0 })
  const { credits, clock } = creditsOn(database)
  await credits.grant('key', 500)
  await credits.reserve('key', { rate: 100, id: 'job', expires: '10m' })
  clock.advance(HOUR_MS)
  for (const _ of [1, 2, 3]) {
    await database.db.transaction((tx) => settleExpired(credits, { tx, as: 'release' }))
  }
  expect(await credits.getRemaining('key')).toMatchObject({ remaining: 500 })
})

test('each settlement is an entry, and hashed names are listed as they are stored', async () => {
  const entries: unknown[] = []
  const write = async (_tx: unknown, some: readonly unknown[]) => void entries.push(...some)
  const { clock, reserve, end } = expiring(TEN['fixed window'], { use: [ledger(write)], hashKeys: true })
  await reserve('key', 'job', 4)
  clock.advance(HOUR_MS)
  const [ended] = await end('release')
  expect(entries[1]).toMatchObject({ kind: 'settle', units: -4, id: ended?.id, key: ended?.key })
  expect(ended?.id).toMatch(/^[0-9a-f]{64}$/)
})

test('the database clock, without an injected one', async () => {
  const { quota, end, list } = expiring(calendarWindow(10, 'year'), { clock: undefined as never })
  await quota.reserve('key', { rate: 1, id: 'now', expires: 1 })
  await quota.reserve('key', { rate: 1, id: 'later', expires: '1h' })
  await database.rows('select pg_sleep(0.01)')
  expect(await end('release')).toMatchObject([{ id: 'now' }])
  expect(await list()).toMatchObject([{ id: 'later' }])
})

test('what is refused before any SQL', async () => {
  const { db, statements } = watch(database.db)
  const { quota, prefix } = quotaOn(database, TEN['fixed window'], { db })
  const end = (options: object) =>
    db.transaction((tx) => settleExpired(quota, { tx, as: 'release', ...options } as SettlePlansOptions))
  const wrong = [
    { as: 'refund' },
    { as: undefined },
    { limit: 0 },
    { limit: 1.5 },
    { limiterOf: 7 },
    { tx: undefined },
    { prefix },
  ]
  for (const options of wrong) await expect(end(options)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  const rows = { prefix, limiter: TEN['fixed window'] } as never
  const ofRows = db.transaction((tx) => settleExpired(rows, { tx, as: 'release' }))
  await expect(ofRows).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  const outside = settleExpired(quota, { tx: db, as: 'release' })
  await expect(outside).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  const list = (options: object) => openReservations(quota, options)
  const listOf = (rows: object) => openReservations({ db, prefix, ...rows } as never)
  await expect(list({ limit: 0 })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await expect(list({ key: '' })).rejects.toMatchObject({ code: 'INVALID_KEY' })
  await expect(listOf({ durable: true, prefix: '' })).rejects.toMatchObject({ code: 'INVALID_PREFIX' })
  await expect(listOf({})).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await expect(list({ keys: 'x' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(statements).toEqual([])
})
