import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { Ratelimit } from '../../../src/index.ts'
import type { Database } from '../../../src/kernel/database/database.ts'
import { spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'

const PROCESSES = 4
const CALLS = 40
const [MONTH, BOUGHT] = [400, 300]
const database = useDatabase()

test('concurrent estimates and costs over two limits: each unit is paid once, and only the last goes into debt', async () => {
  const processes = Array.from({ length: PROCESSES }, () => {
    const config = { db: database.connect(2).db, cleanupProbability: 0 }
    const month = new Ratelimit({
      timeout: false,
      ...config,
      limiter: Ratelimit.fixedWindow(MONTH, '30d'),
      prefix: 'spent month',
    })
    const bought = new Credits({ timeout: false, ...config, prefix: 'spent bought', durable: true })
    return { month, bought }
  })
  const [{ month, bought }] = processes as [(typeof processes)[number]]
  await bought.grant('org', BOUGHT)
  let actuals = 0
  const paid = [0, 0]
  const call = async ({ month, bought }: (typeof processes)[number], place: number) => {
    const requests = [month, bought].map((ratelimit) => ({ ratelimit, key: 'org' }))
    const spent = await spend(requests, { rate: 5, atLeast: 1 })
    if (!spent.success) return
    const actual = place % 11
    const { granted } = await spent.commit(actual)
    actuals += actual
    for (const [source, each] of granted.entries()) paid[source] = (paid[source] ?? 0) + each
  }
  await Promise.all(
    processes.flatMap((each) => Array.from({ length: CALLS }, (_, place) => call(each, place))),
  )
  const used = [await month.getRemaining('org'), await bought.getRemaining('org')].map((usage) => usage.used)
  expect(used).toEqual(paid)
  expect(paid.reduce((sum, each) => sum + each, 0)).toBe(actuals)
  expect(paid[0]).toBeLessThanOrEqual(MONTH)
  expect(actuals).toBeGreaterThan(MONTH)
})

test('what the month pays waits for no grant that a transaction holds', async () => {
  const config = { db: database.connect(2).db, cleanupProbability: 0 }
  const month = new Ratelimit({ ...config, limiter: Ratelimit.fixedWindow(10, '30d'), prefix: 'free month' })
  const credits = new Credits({ ...config, prefix: 'held credits', dated: true, durable: true })
  await credits.grant('org', 10, { id: 'a' })
  const requests = [month, credits].map((ratelimit) => ({ ratelimit, key: 'org' }))
  await config.db.transaction(async (tx) => {
    await credits.limit('org', { tx })
    expect(await spend(requests, { rate: 10 })).toMatchObject({ success: true, granted: [10, 0] })
  })
})

describe('a cost of two credits, of which others take some while it waits', () => {
  let prefixes = 0

  function creditsOn(): Credits<true> {
    const prefix = `two credits ${prefixes++}`
    return new Credits({ db: database.db, timeout: false, prefix, dated: true, cleanupProbability: 0 })
  }

  /** Begins the call while others, in a transaction, hold what they take. */
  async function behind<T>(take: (tx: Database) => Promise<unknown>, call: () => Promise<T>): Promise<T> {
    const { calling } = await database.db.transaction(async (tx) => {
      await take(tx)
      const calling = call()
      await untilWaiting(database)
      return { calling }
    })
    return calling
  }

  test('is paid by what else the first has', async () => {
    const [first, second] = [creditsOn(), creditsOn()]
    await first.grant('org', 10, { id: 'a', priority: 0 })
    await first.grant('org', 100, { id: 'b' })
    await second.grant('org', 2, { id: 'c' })
    const requests = [first, second].map((ratelimit) => ({ ratelimit, key: 'org' }))
    const spending = behind(
      (tx) => first.limit('org', { rate: 10, tx }),
      () => spend(requests, { rate: 10 }),
    )
    expect(await spending).toMatchObject({ success: true, granted: [10, 0] })
  })

  test('is settled, into debt', async () => {
    const [first, second] = [creditsOn(), creditsOn()]
    await first.grant('org', 7, { id: 'a' })
    await second.grant('org', 10, { id: 'b' })
    const requests = [first, second].map((ratelimit) => ({ ratelimit, key: 'org' }))
    const spent = await spend(requests, { rate: 5 })
    const settling = behind(
      (tx) => second.limit('org', { rate: 9, tx }),
      async () => spent.success && spent.commit(10),
    )
    expect(await settling).toMatchObject({ granted: [7, 3] })
    expect(await second.getRemaining('org')).toMatchObject({ used: 12 })
  })
})

test.each([false, true])(
  'credits before what is billed pay as long as they have something, named: %s',
  async (named) => {
    const config = { db: database.db, timeout: false, cleanupProbability: 0 } as const
    const credits = new Credits({ ...config, prefix: `before billed ${named}`, dated: true })
    const limiter = Ratelimit.fixedWindow(Number.POSITIVE_INFINITY, '30d')
    const billed = new Ratelimit({ ...config, limiter, prefix: `billed ${named}` })
    for (let grant = 0; grant < 8; grant++) await credits.grant('org', 5, { id: `${grant}`, priority: grant })
    const requests = [credits, billed].map((ratelimit) => ({ ratelimit, key: 'org' }))
    const call = (_: unknown, place: number) =>
      spend(requests, { rate: 5, ...(named ? { id: `job ${place}`, expires: '1h' } : {}) } as const)
    const spent = await Promise.all(Array.from({ length: 10 }, call))
    const paid = spent.map(({ granted }) => granted.join(' '))
    expect(paid.toSorted()).toEqual([...Array(2).fill('0 5'), ...Array(8).fill('5 0')])
    expect(await billed.getRemaining('org')).toMatchObject({ used: 10 })
  },
)

test('credits before what is billed pay what costs are above their estimates', async () => {
  const config = { db: database.db, timeout: false, cleanupProbability: 0 } as const
  const credits = new Credits({ ...config, prefix: 'before billed costs', dated: true })
  const limiter = calendarWindow(Number.POSITIVE_INFINITY, 'year')
  const billed = new Ratelimit({ ...config, limiter, prefix: 'billed costs' })
  const requests = [credits, billed].map((ratelimit) => ({ ratelimit, key: 'org' }))
  const range = Array.from({ length: 10 }, (_, place) => place)
  const named = (place: number) => ({ id: `job ${place}`, expires: '1h' }) as const
  const spent = await Promise.all(range.map((place) => spend(requests, { rate: 1, ...named(place) })))
  expect(spent.map(({ granted }) => granted)).toEqual(range.map(() => [0, 1]))
  for (const grant of range.slice(2)) await credits.grant('org', 5, { id: `${grant}`, priority: grant })
  const settled = await Promise.all(spent.flatMap((each) => (each.success ? [each.commit(6)] : [])))
  const paid = settled.map(({ granted }) => granted.join(' '))
  expect(paid.toSorted()).toEqual([...Array(2).fill('0 6'), ...Array(8).fill('5 1')])
  expect(await billed.getRemaining('org')).toMatchObject({ used: 20 })
  const reserved = await database.rows(
    `select prev_count from rate_limit_ephemeral where prefix = 'billed costs'`,
  )
  expect(reserved).toEqual([{ prev_count: '0' }])
})

test.each([
  { taken: 6, rate: 10, paid: [3, 7], left: [0, 2] },
  { taken: 10, rate: 10, paid: [3, 5], left: [0, 0] },
  { taken: 13, rate: 9, paid: [3, 2], left: [0, 0] },
])('with atLeast, a cost that waits takes all that others leave: $paid', async (each) => {
  const config = { db: database.db, timeout: false, cleanupProbability: 0 } as const
  const month = new Ratelimit({ ...config, limiter: Ratelimit.fixedWindow(3, '30d'), prefix: 'least month' })
  const credits = new Credits({ ...config, prefix: 'least credits', dated: true })
  const key = `took ${each.taken}`
  await credits.grant(key, 10, { id: 'first', priority: 0 })
  await credits.grant(key, 5, { id: 'second' })
  const { spending } = await database.db.transaction(async (tx) => {
    await credits.limit(key, { rate: each.taken, tx })
    const requests = [month, credits].map((ratelimit) => ({ ratelimit, key }))
    const spending = spend(requests, { rate: each.rate, atLeast: 4 })
    await untilWaiting(database)
    return { spending }
  })
  expect(await spending).toMatchObject({ success: true, granted: each.paid })
  expect((await credits.grants(key)).map(({ left }) => left)).toEqual(each.left)
})
