import { schedule } from 'drizzle-ratelimit/schedule'
import { expect, inject, test, vi } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { Semaphore } from '../../src/semaphore/index.ts'
import { type Db, useDatabase } from '../support/databases.ts'
import { gate } from '../support/gate.ts'
import { untilWaiting } from '../support/locks.ts'
import { fakeTime, useFakeTime } from '../support/timers.ts'

// What comes after a call has timed out is given back. Nobody waits for that, so it has no timeout.

const database = useDatabase()
useFakeTime()

const common = { timeout: '1s', cleanupProbability: 0 } as const

/** Calls on keys whose rows are there, and whether a key has as much as before. */
const calls = {
  slot: (db: Db) => {
    const jobs = new Semaphore({ ...common, db, limit: 1, lease: '1h', prefix: 'slot', durable: false })
    const isWhole = async () => (await jobs.acquire('org', { timeout: '10s' })).success
    return { first: async () => {}, call: () => jobs.acquire('org'), isWhole }
  },
  unit: (db: Db) => {
    const api = new Ratelimit({ ...common, db, limiter: Ratelimit.fixedWindow(2, '1h'), prefix: 'unit' })
    return {
      first: () => api.limit('org'),
      call: () => api.blockUntilReady('org', '1h'),
      isWhole: untilOne(api),
    }
  },
  start: (db: Db) => {
    const api = new Ratelimit({ ...common, db, limiter: Ratelimit.tokenBucket(1, '1h', 1), prefix: 'start' })
    const call = () => schedule(api, 'org', { within: '2h' })
    return { first: () => api.limit('org'), call, isWhole: untilOne(api) }
  },
}

/** Whether one is used in the end. */
function untilOne(api: Ratelimit): () => Promise<boolean> {
  return async () => {
    const isOne = async () => (await api.getRemaining('org')).used === 1
    return vi.waitUntil(isOne, { timeout: 10_000 })
  }
}

// postgres.js sends nothing of a call before Postgres has parsed its statement, which the lock prevents.
const sends = inject('driver') === 'node-postgres'

test.runIf(sends).each(Object.entries(calls))('a %s, however long that takes', async (_, callsOn) => {
  const { db } = database.connect(1)
  const { first, call } = callsOn(db)
  await first()
  const [busy, idle] = [gate(), gate()]
  const blocker = await database.client()
  await blocker.query('begin')
  try {
    await blocker.query('lock table rate_limit_ephemeral')
    fakeTime()
    const late = expect(call()).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    await untilWaiting(database)
    await vi.advanceTimersByTimeAsync(2000)
    await late
    // This has the only connection when the answer has come, and is to be given back.
    const working = db.transaction(async () => {
      busy.open()
      await idle.opened
    })
    await blocker.query('rollback')
    await busy.opened
    await vi.advanceTimersByTimeAsync(2000)
    idle.open()
    await working
  } finally {
    idle.open()
    await blocker.query('rollback')
  }
  vi.useRealTimers()
  expect(await callsOn(database.db).isWhole()).toBe(true)
})
