import { setTimeout as sleep } from 'node:timers/promises'
import { drizzle } from 'drizzle-orm/node-postgres'
import { expect, test, vi } from 'vitest'
import type { Database } from '../../../src/index.ts'
import { type Lease, Semaphore } from '../../../src/semaphore/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { gate } from '../../support/gate.ts'
import { holdRows } from '../../support/locks.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { times } from '../../support/runs.ts'
import { flushStatistics } from '../../support/statistics.ts'
import { type Interval, mostAtOnce } from '../../support/sweep-line.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

/** A semaphore with connections of its own, as another process would have. */
function process(limit: number, lease: number, prefix: string, db = database.connect(2).db): Semaphore {
  return new Semaphore({ timeout: false, db, limit, lease, prefix })
}

test('24 workers have at most 5 leases at once, though some are never released, and the updates are HOT', async () => {
  const intervals: Interval[] = []
  const endsAt = performance.now() + times(4000)
  let abandoned = 0
  const pools = Array.from({ length: 24 }, () => database.connect(1).db)
  const workers = pools.map(async (db) => {
    const exports = process(5, 1_000, 'sweep line', db)
    while (performance.now() < endsAt || intervals.length <= 50) {
      const job = await exports.acquire('org', { timeout: 5000 })
      if (!job.success) continue
      const from = performance.now()
      // The signal is due by then. A busy machine may run it late.
      const end = () => Math.min(performance.now(), from + 900)
      if (Math.random() < 0.02) {
        abandoned++
        // The work goes on until its signal aborts.
        await new Promise((resolve) => job.signal.addEventListener('abort', resolve))
        intervals.push({ from, to: end() })
      } else {
        await sleep(Math.random() * 10)
        intervals.push({ from, to: end() })
        await job.release()
      }
    }
  })
  await Promise.all(workers)
  expect(intervals.length).toBeGreaterThan(50)
  expect(mostAtOnce(intervals)).toBe(5)
  console.info(`${intervals.length} leases of 24 workers, ${abandoned} of them abandoned, at most 5 at once`)
  await flushStatistics(database, pools)
  const [counts] = await database.rows(
    `select n_tup_upd::int as updated, n_tup_hot_upd::int as hot from pg_stat_user_tables where relname = 'rate_limit_durable'`,
  )
  expect(counts?.['updated']).toBeGreaterThan(50)
  // At a full hour an update moves the time of expiry. And while a statement under way still sees the versions
  // of a page, the page may be full. If each update changed an index, none would be HOT.
  expect(Number(counts?.['hot']) / Number(counts?.['updated'])).toBeGreaterThan(0.5)
})

test('first leases of new keys: 16 connections get exactly 3 each', async () => {
  const all = Array.from({ length: 16 }, () => process(3, 60_000, 'new keys'))
  for (let key = 0; key < times(20); key++) {
    const answers = await Promise.all(all.map((exports) => exports.acquire(`key ${key}`)))
    expect(answers.filter(({ success }) => success)).toHaveLength(3)
  }
})

test('a process that takes each slot again at once starves no other', async () => {
  const greedy = process(1, 60_000, 'greedy')
  const others = [process(1, 60_000, 'greedy'), process(1, 60_000, 'greedy')]
  let isOver = false
  let taken = 0
  const greed = Array.from({ length: 3 }, async () => {
    while (!isOver || taken <= 5) {
      const job = await greedy.acquire('org', { timeout: 2000 })
      if (!job.success) continue
      taken++
      await sleep(5)
      await job.release()
    }
  })
  const waits = await Promise.all(
    others.map(async (other) => {
      const ms: number[] = []
      for (let i = 0; i < times(10); i++) {
        const from = performance.now()
        const job = allowed(await other.acquire('org', { timeout: 30_000 }))
        ms.push(performance.now() - from)
        await sleep(5)
        await job.release()
      }
      return ms
    }),
  ).finally(() => {
    isOver = true
  })
  await Promise.all(greed)
  expect(taken).toBeGreaterThan(5)
  expect(Math.max(...waits.flat())).toBeLessThan(10_000)
})

test('a slot that a transaction holds is free at once when its backend ends, and delays no other slot', async () => {
  const exports = process(2, 60_000, 'joined')
  const other = process(2, 60_000, 'joined')
  const client = await database.client()
  client.on('error', () => {})
  const tx = drizzle({ client }) as unknown as Database
  await client.query('begin')
  // The first lease of the key, so its row is new and not committed.
  allowed(await exports.acquire('org', { tx: Object.assign(tx, { rollback: true }) }))
  const [backend] = (await client.query('select pg_backend_pid() as pid')).rows
  // What waited for the transaction would wait forever.
  const second = allowed(await other.acquire('org'))
  expect(await other.acquire('org')).toMatchObject({ success: false, retryAfter: 0 })
  await database.rows('select pg_terminate_backend($1)', [backend.pid])
  expect(await other.acquire('org', { timeout: 30_000 })).toMatchObject({ success: true })
  await second.release()
})

test('a statement that holds the row of a slot for a moment is no denial', async () => {
  const committed = gate()
  let looks = 0
  const { db } = watch(database.connect(2).db, (text) =>
    text.includes('ratelimit_missing') && ++looks > 1 ? committed.opened : undefined,
  )
  const exports = new Semaphore({ timeout: false, db, limit: 1, lease: '1m', prefix: 'held' })
  await allowed(await process(1, 60_000, 'held').acquire('org')).release()
  const client = await holdRows(database, 'held', ['org#0001'], 'rate_limit_durable')
  const asked = exports.acquire('org')
  // It was held for the first look.
  await vi.waitFor(() => expect(looks).toBe(2), PATIENTLY)
  await client.query('commit')
  committed.open()
  expect(await asked).toMatchObject({ success: true })
})

test('a release that waits for another transaction delays no other, and a slot is freed once', async () => {
  const { db } = database.connect(8)
  const own = { timeout: false, prefix: 'held releases', cleanupProbability: 0 } as const
  const jobs = new Semaphore({ db, limit: 1, lease: '30s', ...own })
  const keys = ['a', 'b', 'c', 'd']
  const leases = (await Promise.all(keys.map((key) => jobs.acquire(key)))).flatMap((job) =>
    job.success ? [job] : [],
  )
  const [held, ...others] = leases as [Lease, ...Lease[]]
  let again: Promise<boolean> | undefined
  await db.transaction(async (tx) => {
    expect(await held.release({ tx })).toBe(true)
    again = held.release()
    expect(await Promise.all(others.map((job) => job.release()))).toEqual([true, true, true])
    expect(await Promise.all(keys.slice(1).map((key) => jobs.acquire(key)))).toMatchObject([
      { success: true },
      { success: true },
      { success: true },
    ])
  })
  expect(await again).toBe(false)
  expect(await jobs.acquire('a')).toMatchObject({ success: true })
})
