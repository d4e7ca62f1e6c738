import { beforeEach, expect, test, vi } from 'vitest'
import { type Database, Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { untilWaiting } from '../support/locks.ts'
import { fakeTime, ownTimers, useFakeTime } from '../support/timers.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(10, '1h')

// The timers are the test's; the driver keeps its own.
beforeEach(fakeTime)
useFakeTime()

function limiterOn(db: Database, prefix: string): Ratelimit {
  return new Ratelimit({ db, limiter, prefix, cleanupProbability: 0 })
}

test('a forgotten tx with the only connection of the pool ends after five seconds', async () => {
  const { db } = database.connect(1)
  const ratelimit = limiterOn(db, 'forgotten')
  let ended: unknown
  await db.transaction(async (tx) => {
    const forgotten = ratelimit.limit('key').catch((error: unknown) => {
      ended = error
    })
    await tx.execute('select 1')
    await vi.advanceTimersByTimeAsync(4_999)
    await tx.execute('select 1')
    expect(ended).toBeUndefined()
    await vi.advanceTimersByTimeAsync(1)
    await forgotten
    expect(ended).toMatchObject({ code: 'TIMEOUT' })
    await ratelimit.limit('other', { tx })
  })
  expect(ownTimers()).toEqual([])
  // The statement was waiting for a connection. It charges nothing when the transaction has ended.
  expect(await ratelimit.limit('key')).toMatchObject({ remaining: 9 })
})

test('a forgotten tx that waits for the row of its own transaction ends after five seconds', async () => {
  const { db } = database.connect(2)
  const ratelimit = limiterOn(db, 'forgotten row')
  await ratelimit.limit('key')
  await db.transaction(async (tx) => {
    await ratelimit.limit('key', { tx })
    const forgotten = ratelimit.limit('key').catch((error: unknown) => error)
    await untilWaiting(database, 1)
    await vi.advanceTimersByTimeAsync(5_000)
    expect(await forgotten).toMatchObject({ code: 'OUTCOME_UNKNOWN', contended: true })
  })
  expect(ownTimers()).toEqual([])
})
