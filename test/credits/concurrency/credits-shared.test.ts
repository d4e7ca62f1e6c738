import { and, eq, like, sql } from 'drizzle-orm'
import { expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { rateLimitDurable as table } from '../../../src/index.ts'
import type { Database } from '../../../src/kernel/database/database.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'
import { range } from '../../support/range.ts'
import { deadlocks } from '../../support/statistics.ts'
import { watch } from '../../support/watch.ts'

// Calls on credits that arrive together share a statement, which reads, locks and decides.

const database = useDatabase()

function creditsOn(prefix: string, db: Database = database.db) {
  const options = { dated: true, prefix, durable: true } as const
  return new Credits({ timeout: false, db, ...options, cleanupProbability: 0 })
}

test('equal calls of a key at once are decided together, and the first ones get what there is', async () => {
  const watched = watch(database.db)
  const credits = creditsOn('equal', watched.db)
  for (const id of ['a', 'b', 'c']) await credits.grant('org', 19, { id })
  const before = watched.statements.length
  const answers = await Promise.all(range(50).map(() => credits.limit('org', { rate: 2 })))
  expect(answers.map(({ success }) => success)).toEqual(range(50).map((i) => i < 28))
  expect(answers.slice(0, 28).map(({ remaining }) => remaining)).toEqual(range(28).map((i) => 55 - 2 * i))
  expect(answers.slice(28).map(({ remaining }) => remaining)).toEqual(new Array(22).fill(1))
  expect((await credits.grants('org')).map(({ left }) => left)).toEqual([0, 0, 1])
  // The calls, and the list.
  expect(watched.statements.length - before).toBe(2)
})

test('calls of six processes on twelve keys use up all grants, in their order, without a deadlock', async () => {
  const pools = range(6).map(() => database.connect(3).db)
  const others = pools.map((db) => creditsOn('many', db))
  const keys = range(12).map((i) => `org ${i}`)
  const own = creditsOn('many')
  const ids = ['c', 'a', 'e', 'b', 'd']
  await Promise.all(
    keys.flatMap((key) =>
      ids.map((id, priority) => own.grant(key, 7 + priority, { id, priority, expires: '1d' })),
    ),
  )
  const taken = new Map(keys.map((key) => [key, 0]))
  await Promise.all(
    others.flatMap((credits, process) =>
      range(60).map(async (turn) => {
        const key = keys[(process * 5 + turn) % keys.length] as string
        const rate = 1 + (turn % 3)
        if ((await credits.limit(key, { rate })).success) taken.set(key, (taken.get(key) ?? 0) + rate)
        if (turn % 10 > 0) return
        const grants = await own.grants(key)
        const last = grants.findLastIndex(({ used }) => used > 0)
        expect(grants.slice(0, last).map(({ left }) => left)).toEqual(range(Math.max(last, 0)).map(() => 0))
      }),
    ),
  )
  for (const key of keys) {
    const grants = await own.grants(key)
    expect(grants.map(({ id }) => id)).toEqual(ids)
    expect(grants.reduce((sum, { used }) => sum + used, 0)).toBe(taken.get(key))
    // 30 calls asked for 60 units, and there were 45.
    const left = 45 - (taken.get(key) ?? 0)
    expect(left).toBeLessThan(3)
    while ((await own.limit(key)).success) taken.set(key, (taken.get(key) ?? 0) + 1)
    expect(taken.get(key)).toBe(45)
  }
  expect(await deadlocks(database, pools)).toBe(0)
})

test('a held grant delays the calls of its own key only, and these are decided by what the holder left', async () => {
  const credits = creditsOn('held')
  for (const key of ['held', 'free']) {
    for (const id of ['a', 'b']) await credits.grant(key, 10, { id })
  }
  const answered: string[] = []
  const call = async (key: string, rate: number) => {
    const answer = await credits.limit(key, { rate })
    answered.push(key)
    return answer
  }
  const waiting = await database.db.transaction(async (tx) => {
    await credits.limit('held', { rate: 4, tx })
    const calls = [call('held', 8), call('held', 9), call('free', 3)]
    await untilWaiting(database)
    await calls[2]
    for (const _ of range(5)) await call('free', 1)
    expect(answered).toEqual(new Array(6).fill('free'))
    return { calls: Promise.all(calls.slice(0, 2)) }
  })
  const answers = await waiting.calls
  expect(answers.map(({ success, remaining }) => [success, remaining])).toEqual([
    [true, 8],
    [false, 8],
  ])
})

test('a denial waits for nobody', async () => {
  const credits = creditsOn('denied')
  await credits.grant('org', 10, { id: 'a' })
  await database.db.transaction(async (tx) => {
    await credits.limit('org', { rate: 1, tx })
    expect(await credits.limit('org', { rate: 11 })).toMatchObject({ success: false, remaining: 10 })
  })
})

test('a grant that another process has made comes first at once', async () => {
  const [one, other] = [creditsOn('first'), creditsOn('first', database.connect(2).db)]
  await one.grant('org', 100, { id: 'late', priority: 90 })
  for (const round of range(10)) {
    await one.limit('org')
    await other.grant('org', 2, { id: `early ${round}`, priority: 80 - round })
    await Promise.all([one.limit('org'), other.limit('org')])
    const grants = await one.grants('org')
    expect(grants[0]).toMatchObject({ id: `early ${round}`, used: 2 })
    expect(grants.at(-1)).toMatchObject({ id: 'late', used: round + 1 })
  }
})

test('estimates of many keys are charged and settled by shared statements, each in grants of its own key', async () => {
  const watched = watch(database.db)
  const credits = creditsOn('estimates', watched.db)
  const keys = range(20).map((i) => `org ${i}`)
  for (const [i, key] of keys.entries()) {
    for (const id of ['a', 'b']) await credits.grant(key, 10 + i, { id, expires: '1d' })
  }
  const before = watched.statements.length
  const reserved = await Promise.all(keys.map((key, i) => credits.reserve(key, { rate: 5 + i })))
  expect(reserved.map(({ limit, remaining }) => [limit, remaining])).toEqual(
    keys.map((_, i) => [20 + 2 * i, 15 + i]),
  )
  const settled = await Promise.all(reserved.map((each, i) => (each.success ? each.commit(i) : undefined)))
  expect(settled.map((each) => [each?.returned, each?.remaining])).toEqual(keys.map((_, i) => [5, 20 + i]))
  // One statement charges all of them, and one settles all.
  expect(watched.statements.length - before).toBeLessThanOrEqual(4)
  for (const [i, key] of keys.entries()) {
    expect((await credits.grants(key)).map(({ used }) => used)).toEqual([i, 0])
  }
})

test('equal estimates of a key at once are charged together, and settled together in the grants that paid', async () => {
  const watched = watch(database.db)
  const credits = creditsOn('hot estimates', watched.db)
  for (const id of ['a', 'b', 'c']) await credits.grant('org', 19, { id })
  const before = watched.statements.length
  const reserved = await Promise.all(range(50).map(() => credits.reserve('org', { rate: 2 })))
  expect(reserved.map(({ success }) => success)).toEqual(range(50).map((i) => i < 28))
  const settled = await Promise.all(reserved.map((each) => (each.success ? each.commit(1) : undefined)))
  expect(settled.map((each) => each?.returned)).toEqual(range(50).map((i) => (i < 28 ? 1 : undefined)))
  // The tenth estimate was paid by two grants. The second one gets back what it gave.
  expect((await credits.grants('org')).map(({ used }) => used)).toEqual([10, 9, 9])
  expect(watched.statements.length - before).toBeLessThan(16)
})

test('an estimate gives nothing to another grant that was made at the same time', async () => {
  const clock = new TestClock()
  const options = { dated: true, prefix: 'made together', durable: true } as const
  const { db } = database
  const credits = new Credits({ ...options, db, timeout: false, cleanupProbability: 0, clock: clock.now })
  await credits.grant('org', 10, { id: 'ends', expires: '1m' })
  await credits.grant('org', 10, { id: 'stays' })
  const reserved = await Promise.all([5, 5].map((rate) => credits.reserve('org', { rate })))
  expect(await credits.limit('org', { rate: 10 })).toMatchObject({ success: true, remaining: 0 })
  clock.advance(60_000)
  const released = reserved.map((each) => (each.success ? each.release() : undefined))
  expect((await Promise.all(released)).map((each) => each?.returned)).toEqual([0, 0])
  expect(await credits.getRemaining('org')).toMatchObject({ used: 10, remaining: 0 })
})

test('equal estimates are settled together in different grants that were made at the same time', async () => {
  const clock = new TestClock()
  const options = { dated: true, prefix: 'paid by each', durable: true } as const
  const { db } = database
  const credits = new Credits({ ...options, db, timeout: false, cleanupProbability: 0, clock: clock.now })
  for (const id of ['a', 'b']) await credits.grant('org', 4, { id })
  const reserved = await Promise.all([2, 2, 2, 2].map((rate) => credits.reserve('org', { rate })))
  expect(await credits.getRemaining('org')).toMatchObject({ remaining: 0 })
  const settled = await Promise.all(reserved.map((each) => (each.success ? each.commit(1) : undefined)))
  expect(settled.map((each) => each?.returned)).toEqual([1, 1, 1, 1])
  expect((await credits.grants('org')).map(({ used }) => used)).toEqual([2, 2])
})

test('estimates give back no more than is still used of their grant', async () => {
  const credits = creditsOn('partly returned')
  await credits.grant('org', 10, { id: 'a' })
  const reserved = await Promise.all([6, 1].map((rate) => credits.reserve('org', { rate })))
  expect(await credits.limit('org', { rate: -5 })).toMatchObject({ returned: 5, remaining: 8 })
  const released = reserved.map((each) => (each.success ? each.release() : undefined))
  const returned = (await Promise.all(released)).map((each) => each?.returned ?? 0)
  expect(returned.reduce((sum, each) => sum + each, 0)).toBe(2)
  expect(await credits.getRemaining('org')).toMatchObject({ used: 0, remaining: 10 })
})

test('an error in a read that calls share fails no other call', async () => {
  const own = creditsOn('one is bad')
  const keys = ['a', 'b', 'c']
  for (const key of keys) await own.grant(key, 10, { id: 'x' })
  let isFirst = true
  const { db } = watch(database.db, async (text) => {
    if (!isFirst || !/^\s*select/i.test(text)) return
    isFirst = false
    await database.db.execute(sql`select '\x'::bytea::text::int4`)
  })
  const credits = creditsOn('one is bad', db)
  const forced = await Promise.all(keys.map((key) => credits.limit(key, { rate: 3, force: true })))
  expect(isFirst).toBe(false)
  expect(forced.map(({ remaining }) => remaining)).toEqual([7, 7, 7])
})

test('a settlement next to others gives nothing to a later grant of the same id', async () => {
  const credits = creditsOn('later grants')
  const keys = range(6).map((i) => `org ${i}`)
  await Promise.all(keys.map((key) => credits.grant(key, 10, { id: 'a', expires: '1d' })))
  const reserved = await Promise.all(keys.map((key) => credits.reserve(key, { rate: 5 })))
  await database.db.delete(table).where(and(eq(table.prefix, 'later grants'), like(table.key, 'org 3/%')))
  await credits.grant('org 3', 10, { id: 'a', expires: '1d' })
  expect(await credits.limit('org 3', { rate: 4 })).toMatchObject({ success: true, remaining: 6 })
  const settled = await Promise.all(reserved.map((each) => (each.success ? each.release() : undefined)))
  expect(settled.map((each) => each?.returned)).toEqual([5, 5, 5, 0, 5, 5])
  expect(await credits.getRemaining('org 3')).toMatchObject({ remaining: 6 })
})
