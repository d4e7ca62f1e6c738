import { sql } from 'drizzle-orm'
import { block, blocks } from 'drizzle-ratelimit/lockout'
import { describe, expect, test, vi } from 'vitest'
import { type Database, Ratelimit, RatelimitError } from '../../../src/index.ts'
import { hasServer } from '../../support/databases.ts'
import { fakeTime, ownTimers } from '../../support/timers.ts'
import {
  clock,
  counting,
  database,
  holding,
  letWait,
  makeConnections,
  sent,
  untilEqual,
  waitEnds,
} from './passing-time.ts'

function window(prefix: string, length: number): Ratelimit {
  const limiter = Ratelimit.fixedWindow(1, length)
  return new Ratelimit({ db: counting(database.db), limiter, prefix, clock, cleanupProbability: 0 })
}

test('waits until the call is allowed', async () => {
  const ratelimit = window('waits', 60_000)
  await ratelimit.limit('key')
  const before = performance.now()
  expect(await letWait(ratelimit.blockUntilReady('key', '2m'))).toMatchObject({ success: true })
  expect(sent.at - before).toBe(60_000)
})

test('waits only until there is enough of the rate to be worth it', async () => {
  const limiter = Ratelimit.tokenBucket(1, 60_000, 10)
  const ratelimit = new Ratelimit({
    ...{ db: counting(database.db), limiter, prefix: 'waits for a part', clock, cleanupProbability: 0 },
  })
  await ratelimit.limit('key', { rate: 10 })
  const before = performance.now()
  const part = { rate: 8, atLeast: 3 }
  expect(await ratelimit.blockUntilReady('key', 179_999, part)).toMatchObject({ retryAfter: 180_000 })
  const answer = await letWait(ratelimit.blockUntilReady('key', '1h', part))
  expect(answer).toMatchObject({ success: true, granted: 3, remaining: 0 })
  expect(sent.at - before).toBe(180_000)
})

test('gives the denial at once when the timeout cannot suffice', async () => {
  const ratelimit = window('gives up', 60_000)
  await ratelimit.limit('key')
  const before = performance.now()
  const answer = await ratelimit.blockUntilReady('key', 59_999)
  expect(answer).toMatchObject({ success: false, retryAfter: 60_000 })
  expect(performance.now()).toBe(before)
})

test('does not wait for a time that never comes', async () => {
  const ratelimit = window('never', 60_000)
  const answer = await ratelimit.blockUntilReady('key', '365d', { rate: 2 })
  expect(answer).toMatchObject({ success: false, retryAfter: Number.POSITIVE_INFINITY })
})

test("a month's wait neither overflows the timer nor spins", async () => {
  const month = 31 * 24 * 3600 * 1000
  const ratelimit = window('month', month)
  await ratelimit.limit('key')
  const before = { statements: sent.statements, now: performance.now() }
  expect(await letWait(ratelimit.blockUntilReady('key', '40d'))).toMatchObject({ success: true })
  expect(sent.statements - before.statements).toBe(2)
  expect(sent.at - before.now).toBe(month)
})

test('of two calls that wait for one unit, the second waits again', async () => {
  const ratelimit = window('both', 1000)
  await ratelimit.limit('key')
  const both = [ratelimit.blockUntilReady('key', 5000), ratelimit.blockUntilReady('key', 5000)]
  const answers = await letWait(Promise.all(both))
  expect(answers.map(({ success }) => success)).toEqual([true, true])
  expect(performance.now()).toBeGreaterThanOrEqual(2000)
})

describe('a signal', () => {
  // The signal of a semaphore's lease has such a reason.
  const reason = new RatelimitError('LEASE_ENDED', 'enough')

  test('that aborts ends the wait with its reason, and leaves no timer', async () => {
    const ratelimit = window('aborts', 60_000)
    await ratelimit.limit('key')
    const controller = new AbortController()
    const waiting = ratelimit.blockUntilReady('key', '2m', { signal: controller.signal })
    const refused = expect(waiting).rejects.toBe(reason)
    while (waitEnds.length === 0) await new Promise(setImmediate)
    controller.abort(reason)
    await refused
    expect(ownTimers()).toEqual([])
  })

  test('that has aborted keeps the call from being made', async () => {
    const ratelimit = window('aborted', 60_000)
    const signal = AbortSignal.abort(reason)
    await expect(ratelimit.blockUntilReady('key', '2m', { signal })).rejects.toBe(reason)
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 1 })
  })
})

describe('with an id', () => {
  const once = { id: 'event', for: '1d' } as const
  const limiterOn = (prefix: string, db: Database, more: object = {}) => {
    const limiter = Ratelimit.fixedWindow(2, 60_000)
    return new Ratelimit({ db, limiter, prefix, clock, cleanupProbability: 0, ...more })
  }

  test('waits, is charged once, and then finds its id without waiting', async () => {
    const ratelimit = limiterOn('once waits', counting(database.db))
    await ratelimit.limit('key', { rate: 2 })
    const before = performance.now()
    const charged = await letWait(ratelimit.blockUntilReady('key', '2m', { rate: 2, once }))
    expect(charged).toMatchObject({ success: true, remaining: 0 })
    expect(charged).not.toHaveProperty('repeated')
    expect(sent.at - before).toBe(60_000)
    const [statements, now] = [sent.statements, performance.now()]
    const again = await ratelimit.blockUntilReady('key', '2m', { rate: 2, once })
    expect(again).toMatchObject({ success: true, repeated: true, remaining: 0 })
    expect([sent.statements - statements, performance.now() - now]).toEqual([1, 0])
  })

  test('a denial does not use it up', async () => {
    const ratelimit = limiterOn('once denied', counting(database.db))
    await ratelimit.limit('key', { rate: 2 })
    expect(await ratelimit.blockUntilReady('key', 0, { once })).toMatchObject({ retryAfter: 60_000 })
    vi.advanceTimersByTime(60_000)
    expect(await ratelimit.blockUntilReady('key', 0, { once })).not.toHaveProperty('repeated')
    expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 1 })
  })

  test.each(['signal', 'timeout'])(
    'a check that the %s ends stays charged, and the retry finds it',
    async (by) => {
      const held = holding(counting(database.db))
      const ratelimit = limiterOn(`once late by ${by}`, held.db)
      const [before, controller] = [sent.statements, new AbortController()]
      held.close()
      const waiting = ratelimit.blockUntilReady('key', 1000, { once, signal: controller.signal })
      const failed = expect(waiting).rejects.toMatchObject(
        by === 'signal' ? { name: 'AbortError' } : { code: 'OUTCOME_UNKNOWN' },
      )
      while (sent.statements === before) await new Promise(setImmediate)
      if (by === 'signal') controller.abort()
      else vi.advanceTimersByTime(1000)
      await failed
      held.open()
      await untilEqual(async () => (await ratelimit.getRemaining('key')).used, 1)
      expect(await ratelimit.blockUntilReady('key', 0, { once })).toMatchObject({ repeated: true })
      expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 1 })
      expect(ownTimers()).toEqual([])
    },
  )

  test('a retry after a lost answer is charged once', async () => {
    let loses = true
    const db = counting(database.db)
    const execute: Database['execute'] = async (query) => {
      const answer = await db.execute(query)
      if (loses) throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
      return answer
    }
    const ratelimit = limiterOn('once lost', { ...db, execute })
    const lost = ratelimit.blockUntilReady('key', '10s', { once })
    await expect(lost).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    loses = false
    expect(await ratelimit.blockUntilReady('key', '10s', { once })).toMatchObject({ success: true })
    expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 1 })
  })

  test('waits for a key that is blocked', async () => {
    const ratelimit = limiterOn('once blocked', counting(database.db), { use: [blocks()] })
    await block(ratelimit, 'key', '30s')
    const before = performance.now()
    expect(await letWait(ratelimit.blockUntilReady('key', '1m', { once }))).toMatchObject({ success: true })
    expect(sent.at - before).toBe(30_000)
  })
})

test('does not wait for the end of a block after which the limit has too little', async () => {
  const limiter = Ratelimit.fixedWindow(1, '1h')
  const ratelimit = new Ratelimit({
    ...{ db: counting(database.db), limiter, prefix: 'blocked and used up', clock, cleanupProbability: 0 },
    use: [blocks()],
  })
  await ratelimit.limit('key')
  await block(ratelimit, 'key', '30s')
  const before = performance.now()
  const denied = await ratelimit.blockUntilReady('key', '1m')
  expect(denied).toEqual(await ratelimit.limit('key'))
  expect(denied).toMatchObject({ success: false, limit: 1, retryAfter: 3_600_000 })
  expect(performance.now()).toBe(before)
})

test.runIf(hasServer())('holds no connection while it waits', async () => {
  const { db } = database.connect(1)
  vi.useRealTimers()
  await makeConnections(db, 1)
  fakeTime()
  const limiter = Ratelimit.fixedWindow(1, 60_000)
  const common = { limiter, prefix: 'no connection', clock, cleanupProbability: 0 }
  const ratelimit = new Ratelimit({ ...common, db: counting(db) })
  await ratelimit.limit('key')
  const waiting = ratelimit.blockUntilReady('key', '2m')
  do await new Promise(setImmediate)
  while (waitEnds.length === 0)
  await db.execute(sql`select 1`)
  await letWait(waiting)
})

test('a limiter on a transaction does not wait: it would hold its locks all the while', async () => {
  await database.db.transaction(async (tx) => {
    const ratelimit = new Ratelimit({ db: tx, limiter: Ratelimit.fixedWindow(1, 1000), prefix: 'tx' })
    await expect(ratelimit.blockUntilReady('key', 0)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
})
