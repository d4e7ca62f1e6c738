import { channel } from 'node:diagnostics_channel'
import { sql } from 'drizzle-orm'
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Database, Ratelimit } from '../../../src/index.ts'
import { type Db, hasServer, useDatabase } from '../../support/databases.ts'
import { fakeTime, ownTimers } from '../../support/timers.ts'

const database = useDatabase()
const start = Date.UTC(2026, 0, 1)
// The limiter's clock follows the monotonic one, which is the test's.
const clock = () => new Date(start + performance.now())
// Connections are made before time is faked: making one takes timers.
beforeAll(async () => {
  if (hasServer()) await makeConnections(database.db, 4)
})
beforeEach(fakeTime)
afterEach(() => void vi.useRealTimers())

async function makeConnections(db: Db, connections: number): Promise<void> {
  await Promise.all(Array.from({ length: connections }, () => db.execute('select pg_sleep(0.05)')))
}

let statements = 0
/** When the last one was sent. */
let sentAt = 0
let underWay = 0
/** Counts the statements: time passes for a call only while none is under way. */
function counting(db: Db): Database {
  return {
    transaction: () => Promise.reject(new Error('no transaction is needed')),
    refreshMaterializedView: undefined,
    execute: async (query) => {
      statements++
      sentAt = performance.now()
      underWay++
      try {
        return await db.execute(query)
      } finally {
        underWay--
      }
    },
  }
}

function window(prefix: string, length: number): Ratelimit {
  const limiter = Ratelimit.fixedWindow(1, length)
  return new Ratelimit({ db: counting(database.db), limiter, prefix, clock, cleanupProbability: 0 })
}

/** The longest that a timer of Node lasts. It takes a longer one for 1 ms. */
const MAX_TIMER_MS = 2 ** 31 - 1

/**
 * Lets time pass for waiting calls, in one step to the end of each wait. Steps from timer to timer would stop
 * at those of other code, and one of them may be set again each millisecond.
 */
async function letWait<T>(call: Promise<T>): Promise<T> {
  let done = false
  const ended = () => {
    done = true
  }
  call.then(ended, ended)
  while (!done) {
    await new Promise(setImmediate)
    if (underWay > 0) continue
    const leftMs = Math.min(...waitEnds.map((end) => end - performance.now()).filter((ms) => ms > 0))
    if (leftMs < Number.POSITIVE_INFINITY) vi.advanceTimersByTime(Math.min(leftMs, MAX_TIMER_MS))
  }
  return call
}

/** When the waits that have begun are over. */
let waitEnds: number[] = []
const waits = channel('drizzle-ratelimit:wait')
const onWait = (wait: unknown) => void waitEnds.push(performance.now() + (wait as { waitMs: number }).waitMs)
beforeEach(() => {
  waitEnds = []
  waits.subscribe(onWait)
})
afterEach(() => void waits.unsubscribe(onWait))

test('waits until the call is allowed', async () => {
  const ratelimit = window('waits', 60_000)
  await ratelimit.limit('key')
  const before = performance.now()
  expect(await letWait(ratelimit.blockUntilReady('key', '2m'))).toMatchObject({ success: true })
  expect(sentAt - before).toBe(60_000)
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
  expect(sentAt - before).toBe(180_000)
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
  const before = { statements, now: performance.now() }
  expect(await letWait(ratelimit.blockUntilReady('key', '40d'))).toMatchObject({ success: true })
  expect(statements - before.statements).toBe(2)
  expect(sentAt - before.now).toBe(month)
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
  test('that aborts ends the wait with its reason, and leaves no timer', async () => {
    const ratelimit = window('aborts', 60_000)
    await ratelimit.limit('key')
    const controller = new AbortController()
    const waiting = ratelimit.blockUntilReady('key', '2m', { signal: controller.signal })
    const refused = expect(waiting).rejects.toThrow('enough')
    while (waitEnds.length === 0) await new Promise(setImmediate)
    controller.abort(new Error('enough'))
    await refused
    expect(ownTimers()).toEqual([])
  })

  test('that has aborted keeps the call from being made', async () => {
    const ratelimit = window('aborted', 60_000)
    const signal = AbortSignal.abort(new Error('too late'))
    await expect(ratelimit.blockUntilReady('key', '2m', { signal })).rejects.toThrow('too late')
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: 1 })
  })
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
