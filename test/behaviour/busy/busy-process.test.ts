import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit, type RatelimitConfig } from '../../../src/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { block, sent } from '../../support/busy.ts'
import { useDatabase } from '../../support/databases.ts'
import '../../support/loaded.ts'
import { allowed } from '../../support/allowed.ts'
import { watch } from '../../support/watch.ts'

// A process that is busy reads no answers. That says nothing about the database.

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(1, '1h')
/** The time in which the process is blocked does not count. A busy machine has to answer within the rest. */
const [timeout, blockedMs] = [1_500, 1_600]
let prefix = 0

/** One task after the other keeps the process busy, until the returned function is called. */
function blockAgainAndAgain(ms: number): () => void {
  let isOver = false
  const next = () => {
    if (isOver) return
    block(ms)
    setImmediate(next)
  }
  setImmediate(next)
  return () => {
    isOver = true
  }
}

/** A limiter whose key is used up, with warm connections. */
async function usedUp(config: Partial<RatelimitConfig>): Promise<Ratelimit> {
  const common = { db: database.db, limiter, prefix: `busy ${++prefix}`, cleanupProbability: 0 }
  const ratelimit = new Ratelimit({ ...common, onError: 'allow', ...config } as RatelimitConfig)
  const plain = new Ratelimit({ ...common, prefix: ratelimit.prefix })
  await Promise.all(['key', 'other'].map((key) => plain.limit(key)))
  return ratelimit
}

const DENIED = { success: false, remaining: 0, retryAfter: expect.any(Number) }

type Call = (ratelimit: Ratelimit) => Promise<unknown>

const calls: Readonly<Record<string, Call>> = {
  limit: (ratelimit) => ratelimit.limit('key'),
  limitAll: async (ratelimit) => (await limitAll([{ ratelimit, key: 'key' }])).results[0],
  blockUntilReady: (ratelimit) => ratelimit.blockUntilReady('key', 0),
}

describe('a process that is blocked for longer than the timeout', () => {
  for (const [name, call] of Object.entries(calls)) {
    test(`${name} gets the answer that was there`, async () => {
      const ratelimit = await usedUp({ timeout })
      const answer = call(ratelimit)
      await sent()
      block(blockedMs)
      expect(await answer).toEqual(expect.objectContaining(DENIED))
      expect(await answer).not.toHaveProperty('degraded')
    })

    test(`${name} is still sent, if the process was blocked before`, async () => {
      const ratelimit = await usedUp({ timeout })
      const answer = call(ratelimit)
      block(blockedMs)
      expect(await answer).toEqual(expect.objectContaining(DENIED))
      expect(await answer).not.toHaveProperty('degraded')
    })
  }
})

test('a process that is busy again and again gets the answers, though each needs several turns', async () => {
  // It ends after eleven of the tasks.
  const ratelimit = await usedUp({ timeout: 500 })
  const stop = blockAgainAndAgain(200)
  try {
    const answers = [ratelimit.limit('key'), ratelimit.limit('other'), ratelimit.limit('new')]
    expect(await Promise.all(answers)).toMatchObject([DENIED, DENIED, { success: true }])
    for (const answer of answers) expect(await answer).not.toHaveProperty('degraded')
  } finally {
    stop()
  }
})

test('it counts no failures of the database, so the next call is sent', async () => {
  const ratelimit = await usedUp({ timeout: 600, onError: 'throw', connections: 8 })
  for (let times = 0; times < 6; times++) {
    const answer = ratelimit.limit('key')
    await sent()
    block(700)
    expect(await answer).toMatchObject(DENIED)
  }
})

test('12,000 calls at once on a used-up key let none pass', async () => {
  const ratelimit = await usedUp({ timeout })
  const answers = Array.from({ length: 12_000 }, () => ratelimit.limit('key'))
  block(blockedMs)
  expect((await Promise.all(answers)).filter(({ success }) => success)).toEqual([])
})

test('a database that does not answer still ends the calls of a busy process', async () => {
  const { db } = watch(database.db, () => new Promise(() => {}))
  const ratelimit = await usedUp({ db, timeout: 100, onError: 'throw' })
  const stop = blockAgainAndAgain(60)
  const begun = performance.now()
  await expect(ratelimit.limit('key').finally(stop)).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  // As many tasks as the process may need to read an answer, on a machine that may be busy too.
  expect(performance.now() - begun).toBeLessThan(6_000)
})

test('a database that does not answer ends the calls of an idle process in time', async () => {
  const { db } = watch(database.db, () => new Promise(() => {}))
  const ratelimit = await usedUp({ db, timeout: 500, onError: 'throw' })
  const begun = performance.now()
  await expect(ratelimit.limit('key')).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  expect(performance.now() - begun).toBeGreaterThanOrEqual(498)
})

test('acquire leases the slot that was free while the process was blocked', async () => {
  const exports = new Semaphore({
    ...{ db: database.db, prefix: `busy ${++prefix}`, cleanupProbability: 0, timeout },
    ...{ limit: 1, lease: '1m' },
  })
  const lease = exports.acquire('key', { timeout })
  await sent()
  block(blockedMs)
  expect(await lease).toMatchObject({ success: true })
  const { release } = await lease.then((each) => (each.success ? each : Promise.reject(each)))
  expect(await release()).toBe(true)
})

test('a lease that was extended in time goes on, though the process was blocked when it should have ended', async () => {
  const exports = new Semaphore({
    ...{ db: database.db, prefix: `busy ${++prefix}`, cleanupProbability: 0 },
    ...{ limit: 1, lease: 3_000 },
  })
  const lease = allowed(await exports.acquire('key'))
  // The first statements of a kind may take two, because they find out how large the table is. And the first
  // on a connection of postgres.js takes two round trips. A pool has ten connections, and takes turns.
  for (let times = 0; times < 20; times++) expect(await lease.extend()).toBe(true)
  const extended = lease.extend()
  await sent()
  block(2_800)
  expect(await extended).toBe(true)
  expect(lease.signal.aborted).toBe(false)
})
