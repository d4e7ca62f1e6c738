import { sql } from 'drizzle-orm'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Database, limitAll, Ratelimit } from '../../../src/index.ts'
import { closePeriods, Quota } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { examples } from '../../support/limits.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

describe.each(examples)('$name', ({ name, of }) => {
  // Nothing comes back while a test runs.
  const { limiter } = of(5, '365d')
  const ratelimit = (prefix: string, durable: boolean) =>
    new Quota({ db: database.db, limiter, prefix: `${name} ${prefix}`, durable })

  test.each([true, false])('a rollback undoes the charge (durable: %s)', async (durable) => {
    const limit = ratelimit('rollback', durable)
    await limit.limit('old', { rate: 2 })
    await undone(database.db, async (tx) => {
      expect(await limit.limit('old', { tx })).toMatchObject({ success: true, remaining: 2 })
      expect(await limit.limit('new', { tx })).toMatchObject({ success: true, remaining: 4 })
      expect(await limit.getRemaining('old', { tx })).toMatchObject({ remaining: 2 })
    })
    expect(await limit.getRemaining('old')).toMatchObject({ remaining: 3 })
    expect(await limit.getRemaining('new')).toMatchObject({ remaining: 5 })
  })

  test.each([true, false])('a commit keeps it (durable: %s)', async (durable) => {
    const limit = ratelimit('commit', durable)
    await database.db.transaction((tx) => limit.limit('key', { tx, rate: 3 }))
    expect(await limit.getRemaining('key')).toMatchObject({ remaining: 2 })
  })

  test("a savepoint's rollback undoes its own only", async () => {
    const limit = ratelimit('savepoint', false)
    await database.db.transaction(async (tx) => {
      await limit.limit('key', { tx })
      await undone(tx, (nested) => limit.limit('key', { tx: nested, rate: 3 }))
      expect(await limit.limit('key', { tx })).toMatchObject({ success: true, remaining: 3 })
    })
    expect(await limit.getRemaining('key')).toMatchObject({ remaining: 3 })
  })

  test('a denial in a transaction that is rolled back is forgotten', async () => {
    const limit = ratelimit('denial', false)
    await undone(database.db, async (tx) => {
      await limit.limit('key', { tx, rate: 5 })
      expect(await limit.limit('key', { tx })).toMatchObject({ success: false })
    })
    expect(await limit.limit('key', { rate: 5 })).toMatchObject({ success: true })
  })
})

test('a rollback undoes the work of every method', async () => {
  const limiter = Ratelimit.tokenBucket(1, '1h', 5, { initialTokens: 3 })
  const limit = new Ratelimit({ db: database.db, limiter, prefix: 'methods' })
  await limit.limit('key', { rate: 2 })
  await undone(database.db, async (tx) => {
    await limit.resetUsedTokens('key', { tx })
    expect(await limit.getRemaining('key', { tx })).toMatchObject({ remaining: 5 })
    await limitAll([{ ratelimit: limit, key: 'key', rate: 4 }], { tx })
    expect(await limit.getRemaining('key', { tx })).toMatchObject({ remaining: 1 })
  })
  expect(await limit.getRemaining('key')).toMatchObject({ remaining: 1 })
})

test('another process settles a reservation by its name, or leaves it as it was with a rollback', async () => {
  const limiter = calendarWindow(10, 'month')
  const config = { db: database.db, limiter, prefix: 'name', durable: true, clock: new TestClock().now }
  const [limit, other] = [new Quota(config), new Quota(config)]
  const name = { key: 'key', id: 'job' }
  await limit.reserve('key', { rate: 4, id: 'job', expires: '1h' })
  await undone(database.db, async (tx) => {
    expect(await other.settle(name, 9, { tx })).toMatchObject({ success: true, remaining: 1 })
    expect(await limit.getRemaining('key', { tx })).toMatchObject({ used: 9 })
  })
  expect(await limit.getRemaining('key')).toMatchObject({ used: 4 })
  await database.db.transaction((tx) => other.settle(name, 1, { tx }))
  expect(await limit.getRemaining('key')).toMatchObject({ used: 1 })
})

test('closePeriods hands out an ended period with the transaction, and keeps it after a rollback', async () => {
  const clock = new TestClock(Date.UTC(2026, 0, 31))
  const [limiter, prefix] = [calendarWindow(10, 'month'), 'closed']
  const config = {
    db: database.db,
    limiter,
    prefix,
    clock: clock.now,
    durable: true,
    keepEnded: true,
  } as const
  const limit = new Quota(config)
  await limit.limit('key', { rate: 7 })
  clock.ms = Date.UTC(2026, 1, 1)
  const close = (tx: Database) => closePeriods(limit, { tx })
  const january = { key: 'key', start: Date.UTC(2026, 0, 1), end: Date.UTC(2026, 1, 1), used: 7, reserved: 0 }
  await undone(database.db, async (tx) => {
    expect(await close(tx)).toEqual([january])
    expect(await close(tx)).toEqual([])
  })
  expect(await database.db.transaction(close)).toEqual([january])
  expect(await database.db.transaction(close)).toEqual([])
  expect(await database.rows(`select * from rate_limit_durable where prefix = 'closed'`)).toEqual([])
})

test('a limiter that is built on a transaction joins it with every call', async () => {
  await undone(database.db, async (tx) => {
    const { db, statements } = watch(tx)
    const joined: Database = { ...db, rollback: undefined }
    const limiter = Ratelimit.fixedWindow(5, '1h')
    const limit = new Quota({ db: joined, limiter, prefix: 'built', cleanupProbability: 1, durable: true })
    await limit.limit('key')
    await Promise.all([limit.limit('key'), limit.limit('other')])
    // A new key takes two.
    expect(statements).toHaveLength(2 + 1 + 2)
    expect(statements.join()).not.toContain('set_config')
    expect(await limit.getRemaining('key')).toMatchObject({ remaining: 3 })
    await limit.resetUsedTokens('key')
    expect(await limit.cleanup()).toBe(0)
    expect(await limitAll([{ ratelimit: limit, key: 'key' }])).toMatchObject({ success: true })
  })
  expect(await database.rows(`select * from rate_limit_durable where prefix = 'built'`)).toEqual([])
})

test('leaves the settings of the transaction and the session as they were', async () => {
  const limiter = Ratelimit.fixedWindow(5, '1h')
  const options = {
    db: database.db,
    limiter,
    prefix: 'settings',
    durable: true,
    cleanupProbability: 1,
  } as const
  const settings = async (tx: Database) => {
    const result = await tx.execute(
      sql`select current_setting('synchronous_commit') || ' ' || current_setting('lock_timeout') as settings`,
    )
    return JSON.stringify(result).match(/"settings":"([^"]*)"/)?.[1]
  }
  for (const synchronousCommit of [true, false]) {
    const limit = new Ratelimit({ ...options, synchronousCommit })
    await database.db.transaction(async (tx) => {
      await tx.execute(sql`set local lock_timeout = '7s'`)
      expect(await settings(tx)).toBe('on 7s')
      await limit.limit('key', { tx })
      await limitAll([{ ratelimit: limit, key: 'key' }], { tx })
      await limit.resetUsedTokens('key', { tx })
      expect(await settings(tx)).toBe('on 7s')
    })
    await limit.limit('key')
    await limit.cleanup()
    expect(await settings(database.db)).toBe('on 0')
  }
})

test.runIf(hasServer())('a pool of one does not hang', async () => {
  const { db } = database.connect(1)
  const limiter = Ratelimit.fixedWindow(100, '1h')
  const limit = new Quota({ db, limiter, prefix: 'pool of one', cleanupProbability: 1, durable: true })
  const other = new Ratelimit({ db, limiter, prefix: 'pool of one', autoMigrate: true })
  await db.transaction(async (tx) => {
    await limit.limit('key', { tx })
    await limit.getRemaining('key', { tx })
    await limit.resetUsedTokens('key', { tx })
    await other.limit('key', { tx })
    await limitAll(
      [
        { ratelimit: limit, key: 'a' },
        { ratelimit: other, key: 'b' },
      ],
      { tx },
    )
  })
  await limitAll([
    { ratelimit: limit, key: 'a' },
    { ratelimit: other, key: 'b' },
  ])
  const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => limit.limit(`key ${i % 5}`)))
  expect(answers.every(({ success }) => success)).toBe(true)
})

test('calls of one transaction at once are decided one after the other', async () => {
  const limiter = Ratelimit.fixedWindow(5, '1h')
  const limit = new Ratelimit({ db: database.db, limiter, prefix: 'at once' })
  await database.db.transaction(async (tx) => {
    const answers = await Promise.all(Array.from({ length: 7 }, () => limit.limit('key', { tx })))
    expect(answers.map(({ success }) => success)).toEqual([true, true, true, true, true, false, false])
  })
})
