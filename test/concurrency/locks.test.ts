import { sql } from 'drizzle-orm'
import { expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { untilWaiting } from '../support/locks.ts'
import { times } from '../support/runs.ts'
import { deadlocks } from '../support/statistics.ts'

// Slow: a deadlock needs many rounds of many connections to show.

const database = useDatabase()

test('the clock is read after the lock: a window that ends during the wait is over', async () => {
  const limiter = Ratelimit.fixedWindow(2, 300)
  const ratelimit = new Ratelimit({
    timeout: false,
    db: database.db,
    limiter,
    prefix: 'clock',
    cleanupProbability: 0,
  })
  await ratelimit.limit('key', { rate: 2 })
  const holder = database.connect(1).db
  const waiter = new Ratelimit({
    timeout: false,
    db: database.connect(1).db,
    limiter,
    prefix: 'clock',
    cleanupProbability: 0,
  })
  const answer = await holder.transaction(async (tx) => {
    await tx.execute(sql`select 1 from rate_limit_ephemeral where prefix = 'clock' for update`)
    const started = waiter.limit('key')
    await untilWaiting(database)
    await tx.execute(sql`select pg_sleep(0.4)`)
    return { started }
  })
  expect(await answer.started).toMatchObject({ success: true, remaining: 1 })
})

test('a row that is removed while a check waits for it is made again', async () => {
  const limiter = Ratelimit.fixedWindow(2, '1h')
  const ratelimit = new Ratelimit({
    timeout: false,
    db: database.db,
    limiter,
    prefix: 'removed',
    cleanupProbability: 0,
  })
  await ratelimit.limit('key', { rate: 2 })
  const waiter = new Ratelimit({ timeout: false, db: database.connect(1).db, limiter, prefix: 'removed' })
  const { started } = await database.connect(1).db.transaction(async (tx) => {
    await ratelimit.resetUsedTokens('key', { tx })
    const started = waiter.limit('key')
    await untilWaiting(database)
    return { started }
  })
  expect(await started).toMatchObject({ success: true, remaining: 1 })
})

test('a first insert that loses its race is decided by another statement, and charged once', async () => {
  const limiter = Ratelimit.fixedWindow(2, '1h')
  const first = new Ratelimit({ timeout: false, db: database.db, limiter, prefix: 'race' })
  const second = new Ratelimit({ timeout: false, db: database.connect(1).db, limiter, prefix: 'race' })
  const { started } = await database.connect(1).db.transaction(async (tx) => {
    await first.limit('key', { tx })
    const started = second.limit('key')
    await untilWaiting(database)
    return { started }
  })
  expect(await started).toMatchObject({ success: true, remaining: 0 })
  expect(await first.limit('key')).toMatchObject({ success: false })
})

test('statements over the same keys in opposite orders, single checks and cleanup: no deadlock', async () => {
  const keys = Array.from({ length: 20 }, (_, i) => `key ${i}`)
  const limiter = Ratelimit.fixedWindow(1000, 20)
  const pools = Array.from({ length: 16 }, () => database.connect(1).db)
  await Promise.all(
    pools.map(async (db, process) => {
      const ratelimit = new Ratelimit({
        timeout: false,
        db,
        limiter,
        prefix: 'orders',
        cleanupProbability: 1,
      })
      const mine = process % 2 === 0 ? keys : keys.toReversed()
      for (let round = 0; round < times(25); round++) {
        await Promise.all(mine.map((key) => ratelimit.limit(key)))
        await ratelimit.limit(`key ${process}`)
        await ratelimit.cleanup()
      }
    }),
  )
  expect(await deadlocks(database, pools)).toBe(0)
})

test('getRemaining waits for no lock', async () => {
  const ratelimit = new Ratelimit({
    timeout: false,
    db: database.db,
    limiter: Ratelimit.fixedWindow(5, '1h'),
    prefix: 'look',
  })
  await ratelimit.limit('key')
  await database.connect(1).db.transaction(async (tx) => {
    await ratelimit.limit('key', { tx })
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 4 })
  })
})

test('cleanup skips what others have locked', async () => {
  const ratelimit = new Ratelimit({
    timeout: false,
    db: database.db,
    limiter: Ratelimit.fixedWindow(5, 1),
    prefix: 'skip',
    clock: () => new Date(0),
    cleanupProbability: 0,
  })
  await ratelimit.limit('locked')
  await ratelimit.limit('free')
  const now = new Ratelimit({
    timeout: false,
    db: database.db,
    limiter: Ratelimit.fixedWindow(5, 1),
    prefix: 'skip',
  })
  await database.connect(1).db.transaction(async (tx) => {
    await tx.execute(
      sql`select 1 from rate_limit_ephemeral where prefix = 'skip' and key = 'locked' for update`,
    )
    expect(await now.cleanup()).toBe(1)
  })
  expect(await now.cleanup()).toBe(1)
})
