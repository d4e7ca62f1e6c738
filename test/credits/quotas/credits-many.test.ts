import type { SQL } from 'drizzle-orm'
import { expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { type Database, limitAll, Ratelimit } from '../../../src/index.ts'
import { Quota, spend } from '../../../src/quota/index.ts'
import { allowed } from '../../support/allowed.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

// Calls on a key with many grants: what they read depends on what they take, and not on how many there are.

const database = useDatabase()
const HOUR_MS = 3_600_000
const GRANTS = 100

let prefixes = 0

/** 100 grants of 10 units, which end one after the other, and the most rows that a statement has answered. */
async function manyGrants() {
  const { db } = database
  const read = { most: 0, untilLate: 0 }
  const counting: Database = {
    ...watch(db).db,
    execute: async (query: SQL) => {
      const answer: unknown = await db.execute(query)
      const rows: readonly unknown[] = Array.isArray(answer) ? answer : Object(answer).rows
      read.most = Math.max(read.most, rows.length)
      if (--read.untilLate === 0) clock.advance(30_000)
      return answer
    },
  }
  const clock = new TestClock()
  const common = { db: counting, durable: true, clock: clock.now, cleanupProbability: 0 }
  const prefix = `many ${++prefixes}`
  const credits = new Credits({ ...common, dated: true, prefix })
  const limiter = Ratelimit.fixedWindow(1, '50h')
  const windows = new Quota({ ...common, limiter, prefix: `${prefix} windows` })
  await Promise.all(
    Array.from({ length: GRANTS }, (_, place) =>
      credits.grant('key', 10, { id: String(place), expires: new Date(clock.ms + (place + 1) * HOUR_MS) }),
    ),
  )
  /** The answer of a call, and how many rows it has read at most. */
  const reading = async <T>(call: () => Promise<T>) => {
    read.most = 0
    const answer = await call()
    return { answer, rows: read.most }
  }
  return { credits, windows, clock, read, reading }
}

// A key with no more rows is read at once.
const FEW = 51

test('a call reads those that pay, whatever it is, and answers by all', async () => {
  const { credits, windows, reading } = await manyGrants()
  const all = [{ ratelimit: credits, key: 'key', rate: 15 }]
  const calls = {
    once: () => credits.limit('key', { rate: 15, once: { id: 'job', for: '1d' } }),
    atLeast: () => credits.limit('key', { rate: 15, atLeast: 1 }),
    force: () => credits.limit('key', { rate: 15, force: true }),
    estimate: () => credits.reserve('key', { rate: 15 }),
    name: () => credits.reserve('key', { rate: 15, id: 'job', expires: '1d' }),
    limitAll: async () => (await limitAll(all)).results[0],
    spend: async () =>
      (
        await spend(
          [
            { ratelimit: credits, key: 'key' },
            { ratelimit: windows, key: 'key' },
          ],
          { rate: 15 },
        )
      ).results[0],
  }
  let remaining = 10 * GRANTS
  for (const [name, call] of Object.entries(calls)) {
    const { answer, rows } = await reading(call)
    remaining -= 15
    expect({ name, answer }).toMatchObject({ name, answer: { success: true, limit: 10 * GRANTS, remaining } })
    expect({ name, isFew: rows <= FEW, rows }).toMatchObject({ name, isFew: true })
  }
  const { answer: given, rows } = await reading(() => credits.limit('key', { rate: -25 }))
  expect(given).toMatchObject({ limit: 10 * GRANTS, remaining: remaining + 25, returned: 25 })
  expect(rows).toBeLessThanOrEqual(FEW)
})

test('settlements read those that they change', async () => {
  const { credits, reading } = await manyGrants()
  await credits.limit('key', { rate: 500 })
  const estimate = allowed(await credits.reserve('key', { rate: 45 }))
  const below = await reading(() => estimate.commit(5))
  expect(below.answer).toMatchObject({ limit: 1_000, remaining: 495, returned: 40 })
  expect(below.rows).toBeLessThanOrEqual(FEW)
  await credits.reserve('key', { rate: 5, id: 'job', expires: '1d' })
  const above = await reading(() => credits.settle({ key: 'key', id: 'job' }, 25))
  expect(above.answer).toMatchObject({ limit: 1_000, remaining: 470 })
  expect(above.rows).toBeLessThanOrEqual(FEW)
  const again = await reading(() => credits.settle({ key: 'key', id: 'job' }, 25))
  expect(again.answer).toMatchObject({ limit: 1_000, remaining: 470, repeated: true })
  expect(again.rows).toBeLessThanOrEqual(FEW)
})

test('a denial by others says how long the grants will last that were not read', async () => {
  const { credits, windows, clock } = await manyGrants()
  await windows.limit('key')
  const both = (rate: number) =>
    limitAll([
      { ratelimit: windows, key: 'key' },
      { ratelimit: credits, key: 'key', rate },
    ])
  // The window is free after 50 hours, when the grants that end later have 500.
  expect(await both(500)).toMatchObject({ success: false, retryAfter: 50 * HOUR_MS })
  expect(await both(501)).toMatchObject({ success: false, retryAfter: Infinity })
  clock.advance(50 * HOUR_MS)
  expect(await both(500)).toMatchObject({ success: true, results: [{}, { limit: 500, remaining: 0 }] })
})

test('an answer counts no grant that has ended after it was read', async () => {
  const { credits, clock, read } = await manyGrants()
  const expires = new Date(clock.ms + 30_000)
  await credits.grant('key', 7, { id: 'first to end, last to pay', priority: 90, expires })
  const once = (id: string) => credits.limit('key', { rate: 15, once: { id, for: '1d' } })
  expect(await once('before')).toMatchObject({ limit: 10 * GRANTS + 7, remaining: 10 * GRANTS + 7 - 15 })
  // As if a row of the call were held so long, after two statements have read the grants.
  read.untilLate = 2
  expect(await once('while it ends')).toMatchObject({ limit: 10 * GRANTS, remaining: 10 * GRANTS - 30 })
  expect(clock.ms).toBe(expires.getTime())
})
