import { afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { type Database, limitAll, Ratelimit } from '../../../src/index.ts'
import { Quota, settle, settleExpired, spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'
import { times } from '../../support/runs.ts'
import { deadlocks } from '../../support/statistics.ts'

// Every way of settling locks rows in the order of every list: table, prefix and key, and names last.

const database = useDatabase()
const UNDO = new Error('undo')
const named = { id: 'job', expires: '1h' } as const

let dbs: readonly Db[]
beforeAll(() => {
  dbs = Array.from({ length: 8 }, () => database.connect(2).db)
})

let before = 0
beforeEach(async () => {
  before = await deadlocks(database, dbs)
})
afterEach(async () => {
  expect(await deadlocks(database, dbs)).toBe(before)
})

/** A transaction locks a row, then `settling` waits for it, and then the transaction locks a second row. */
async function interleaved<T>(
  first: (tx: Database) => Promise<unknown>,
  settling: () => Promise<T>,
  second: (tx: Database) => Promise<unknown>,
): Promise<T> {
  let settled: Promise<T> | undefined
  const undone = dbs[0]?.transaction(async (tx) => {
    await first(tx)
    settled = settling()
    settled.catch(() => {})
    await untilWaiting(database)
    await second(tx)
    throw UNDO
  })
  await expect(undone).rejects.toBe(UNDO)
  return settled ?? expect.fail()
}

/** A month with grace, and credits whose row comes before it. */
function monthOn(db: Db | undefined, name: string) {
  if (!db) throw new Error('There is no such database.')
  const common = { db, durable: true, cleanupProbability: 0 } as const
  const limiter = calendarWindow(1000, 'month')
  const month = new Quota({
    timeout: false,
    ...common,
    limiter,
    prefix: `z ${name}`,
    keepEnded: true,
    grace: '1h',
  })
  const credits = new Credits({
    timeout: false,
    ...common,
    prefix: `a ${name}`,
  })
  const requests = [
    { ratelimit: month, key: 'org' },
    { ratelimit: credits, key: 'org' },
  ]
  return { month, credits, requests }
}

test('a cost above an estimate that the month has paid, with grace', async () => {
  const [one, other] = dbs.map((db) => monthOn(db, 'grace')) as [
    ReturnType<typeof monthOn>,
    ReturnType<typeof monthOn>,
  ]
  await one.credits.grant('org', 100)
  await spend(one.requests, { rate: 10, ...named })
  const settled = await interleaved(
    (tx) => one.credits.limit('org', { tx }),
    () => settle(other.requests, 'job', { actual: 15 }),
    (tx) => one.month.limit('org', { tx }),
  )
  expect(settled).toMatchObject({ granted: [15, 0] })
  expect(await one.month.getRemaining('org')).toMatchObject({ used: 15 })
})

/** A limit in the first table, for which an exact cost changes nothing, and one in the second table. */
function tablesOn(db: Db | undefined, name: string) {
  if (!db) throw new Error('There is no such database.')
  const common = { db, prefix: name, cleanupProbability: 0 } as const
  const first = new Quota({
    timeout: false,
    ...common,
    limiter: Ratelimit.tokenBucket(40, '1d', 40),
    durable: true,
  })
  const second = new Quota({
    durable: false,
    timeout: false,
    ...common,
    limiter: calendarWindow(1000, 'month'),
    grace: '1h',
    keepEnded: true,
  })
  const requests = [
    { ratelimit: first, key: 'org' },
    { ratelimit: second, key: 'org' },
  ]
  return { first, second, requests }
}

test.each([
  ['a cost above an estimate', 60],
  ['an exact cost, with grace', 50],
] as const)('%s in two tables', async (name, actual) => {
  const [one, other] = dbs.map((db) => tablesOn(db, name)) as [
    ReturnType<typeof tablesOn>,
    ReturnType<typeof tablesOn>,
  ]
  await spend(one.requests, { rate: 50, ...named })
  const settled = await interleaved(
    // The cost is exact, so the name alone is locked.
    (tx) => one.first.settle({ key: 'org', id: 'job' }, 40, { tx }),
    () => settle(other.requests, 'job', { actual }),
    (tx) => one.second.limit('org', { tx }),
  )
  expect(settled).toMatchObject({ granted: [40, actual - 40] })
})

test('settleExpired of several keys', async () => {
  const clock = new TestClock()
  const [one, other] = dbs.map((db) => {
    const common = { db, durable: true, prefix: 'expired', cleanupProbability: 0, clock: clock.now } as const
    return new Quota({ timeout: false, ...common, limiter: Ratelimit.slidingWindow(100, '1h') })
  }) as [Quota, Quota]
  for (const key of ['one', 'two']) {
    await one.reserve(key, { rate: 10, id: 'job', expires: '1m' })
  }
  clock.advance(60_000)
  const ended = await interleaved(
    (tx) => one.limit('two', { tx }),
    async () => dbs[1]?.transaction((tx) => settleExpired(other, { tx, as: 'release' })),
    // The cost is exact, so the name alone is locked.
    (tx) => one.settle({ key: 'one', id: 'job' }, 10, { tx }),
  )
  expect(ended).toMatchObject([
    { key: 'one', returned: 10 },
    { key: 'two', returned: 10 },
  ])
})

test('costs above estimates next to lists of the same limits never deadlock', async () => {
  const all = dbs.map((db) => monthOn(db, 'race'))
  const [first] = all as [(typeof all)[number]]
  await first.credits.grant('org', 100_000)
  const ids = Array.from({ length: Math.max(times(20), 8) }, (_, i) => `job ${i}`)
  for (const id of ids) await spend(first.requests, { rate: 1, id, expires: '1h' })
  let isOver = false
  const others = all.slice(4).map(async ({ requests }) => {
    while (!isOver) await limitAll(requests)
  })
  await Promise.all(
    all.slice(0, 4).map(async ({ requests }, place) => {
      for (const id of ids.filter((_, i) => i % 4 === place)) await settle(requests, id, { actual: 3 })
    }),
  ).finally(() => {
    isOver = true
  })
  await Promise.all(others)
})
