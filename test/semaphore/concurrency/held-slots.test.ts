import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'drizzle-orm'
import { describe, expect, test, vi } from 'vitest'
import { execute } from '../../../src/kernel/database/run.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { allowed } from '../../support/allowed.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { times } from '../../support/runs.ts'
import { fakeTime, useFakeTime } from '../../support/timers.ts'
import { undone } from '../../support/undone.ts'

const database = useDatabase()

useFakeTime()

function slots(prefix: string, limit: number): Semaphore {
  const { db } = database.connect(8)
  return new Semaphore({ timeout: false, db, limit, lease: '1h', prefix, cleanupProbability: 0 })
}

/** Runs the work while a transaction holds slot 3, and all other slots are free. */
async function besideSlot3(jobs: Semaphore, work: () => Promise<void>): Promise<void> {
  const leases = [allowed(await jobs.acquire('org')), allowed(await jobs.acquire('org'))]
  await database.connect(1).db.transaction(async (tx) => {
    allowed(await jobs.acquire('org', { tx }))
    for (const lease of leases) await lease.release()
    await work()
  })
}

describe.each(['new', 'known'])('a slot that a transaction holds, its row is %s,', (row) => {
  async function withRows(prefix: string): Promise<Semaphore> {
    const jobs = slots(`${prefix}, ${row}`, 3)
    if (row === 'new') return jobs
    const leases = [1, 2, 3].map(() => jobs.acquire('org'))
    for (const lease of await Promise.all(leases)) await allowed(lease).release()
    return jobs
  }

  test('counts for a smaller limit', async () => {
    const jobs = await withRows('counts')
    await besideSlot3(jobs, async () => {
      const denied = { success: false, retryAfter: 0 }
      expect(await jobs.acquire('org', { limit: 1 })).toMatchObject(denied)
      const one = allowed(await jobs.acquire('org', { limit: 2 }))
      expect(await jobs.acquire('org', { limit: 2 })).toMatchObject(denied)
      const two = allowed(await jobs.acquire('org'))
      expect(await jobs.acquire('org')).toMatchObject(denied)
      await one.release()
      await two.release()
    })
    allowed(await jobs.acquire('org', { limit: 1 }))
  })

  test('counts for a smaller limit in another transaction', async () => {
    const jobs = await withRows('counts in another')
    await besideSlot3(jobs, async () => {
      await database.connect(1).db.transaction(async (tx) => {
        expect(await jobs.acquire('org', { limit: 1, tx })).toMatchObject({ success: false })
        allowed(await jobs.acquire('org', { limit: 2, tx }))
        expect(await jobs.acquire('org', { limit: 2 })).toMatchObject({ success: false })
      })
    })
  })

  test('does not count after a rollback, nor after one to a savepoint', async () => {
    const jobs = await withRows('rolled back')
    const rolledBack = besideSlot3(jobs, () => Promise.reject(new Error('rolled back')))
    await expect(rolledBack).rejects.toThrow('rolled back')
    allowed(await jobs.acquire('org', { limit: 1 })).release()
    await database.connect(1).db.transaction(async (tx) => {
      await undone(tx, async (nested) => {
        allowed(await jobs.acquire('org', { tx: nested }))
      })
      allowed(await jobs.acquire('org', { limit: 1 }))
    })
  })

  test('is the only one that the transaction gets', async () => {
    const jobs = await withRows('the only one')
    const leases = [allowed(await jobs.acquire('org')), allowed(await jobs.acquire('org'))]
    await database.connect(1).db.transaction(async (tx) => {
      const first = allowed(await jobs.acquire('org', { tx }))
      for (const lease of leases) await lease.release()
      const again = allowed(await jobs.acquire('org', { tx }))
      expect(again.fence).toBeGreaterThan(first.fence)
      // It is the only holder, so a limit of 1 lets it pass, too.
      allowed(await jobs.acquire('org', { limit: 1, tx }))
      const others = await Promise.all([1, 2, 3].map(() => jobs.acquire('org')))
      expect(others.filter(({ success }) => success)).toHaveLength(2)
      expect(await jobs.acquire('org', { limit: 2, tx })).toMatchObject({ success: false })
    })
  })
})

test('a slot that another transaction holds is in the list of holders until it ends, without its lease', async () => {
  const jobs = slots('listed', 3)
  const unknown = { fence: undefined, since: undefined, expires: undefined }
  await besideSlot3(jobs, async () => {
    const { fence } = allowed(await jobs.acquire('org'))
    const listed = [
      { slot: 1, fence },
      { slot: 3, ...unknown },
    ]
    expect(await jobs.holders('org')).toMatchObject(listed)
    await database.connect(1).db.transaction(async (tx) => {
      expect(await jobs.holders('org', { tx })).toMatchObject(listed)
      allowed(await jobs.acquire('org', { tx }))
      expect(await jobs.holders('org')).toMatchObject([listed[0], { slot: 2, ...unknown }, listed[1]])
    })
  })
  expect(await jobs.holders('org')).toMatchObject([{ slot: 1 }])
})

test('a list of holders waits for nobody, and nobody for it', async () => {
  const jobs = slots('waits for nobody', 2)
  await allowed(await jobs.acquire('org')).release()
  const { db } = database.connect(1)
  await db.transaction(async (tx) => {
    await tx.execute(sql`select from rate_limit_durable where prefix = 'waits for nobody' for update`)
    expect(await jobs.holders('org')).toEqual([])
  })
  await db.transaction(async (tx) => {
    expect(await jobs.holders('org', { tx })).toEqual([])
    const [locks] = await execute(
      tx,
      sql`select count(*)::int as taken from pg_locks
        where pid = pg_backend_pid() and (locktype = 'advisory' or mode = 'RowShareLock')`,
    )
    expect(locks).toEqual({ taken: 0 })
    await allowed(await jobs.acquire('org')).release()
  })
})

test('a call in a transaction waits no longer than its timeout for a row that others hold', async () => {
  const clock = new TestClock()
  const { db } = database.connect(1)
  const jobs = new Semaphore({
    db,
    limit: 1,
    lease: '1h',
    prefix: 'waits in time',
    clock: clock.now,
    cleanupProbability: 0,
  })
  allowed(await jobs.acquire('org'))
  clock.advance(3_600_000)
  await db.transaction(async (tx) => {
    await tx.execute(sql`select from rate_limit_durable where prefix = 'waits in time' for update`)
    await database.connect(1).db.transaction(async (other) => {
      // Only pauses take time here, and no answer of the database does.
      fakeTime()
      const startedAt = performance.now()
      let isOver = false
      const waiting = jobs.acquire('org', { tx: other, timeout: 100 }).finally(() => {
        isOver = true
      })
      while (!isOver) {
        await new Promise((resolve) => setImmediate(resolve))
        if (vi.getTimerCount() > 0) vi.advanceTimersToNextTimer()
      }
      expect(await waiting).toMatchObject({ success: false, retryAfter: 0 })
      expect(performance.now() - startedAt).toBeCloseTo(100, 0)
    })
  })
})

interface Held {
  readonly from: number
  to: number
}

test('calls under any plan, alone and in transactions: no grant while the limit is held', async () => {
  const jobs = slots('any plan', 1)
  const all: Held[] = []
  const tooMany: string[] = []
  const endsAt = performance.now() + times(3000)
  const worker = async (client: ReturnType<typeof database.connect>) => {
    while (performance.now() < endsAt || all.length <= 50) {
      const limit = 1 + Math.floor(Math.random() * 4)
      const asked = async (options: object) => {
        const called = performance.now()
        const lease = await jobs.acquire('org', { limit, ...options })
        const answered = performance.now()
        if (!lease.success) return undefined
        const others = all.filter(({ from, to }) => from < called && to > answered).length
        if (others >= limit) tooMany.push(`${others + 1} under a limit of ${limit}`)
        const entry = { from: answered, to: Number.POSITIVE_INFINITY }
        all.push(entry)
        await sleep(Math.random() * 8)
        entry.to = performance.now()
        return lease
      }
      if (Math.random() < 0.5) await client.db.transaction((tx) => asked({ tx }))
      else await (await asked({}))?.release()
    }
  }
  await Promise.all(Array.from({ length: 8 }, () => worker(database.connect(1))))
  expect(all.length).toBeGreaterThan(50)
  expect(tooMany).toEqual([])
})
