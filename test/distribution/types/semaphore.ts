import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/pglite'
import { citus } from 'drizzle-ratelimit/citus'
import { ledger } from 'drizzle-ratelimit/ledger'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { type Holder, Semaphore, type SemaphoreConfig } from '../../../src/semaphore/index.ts'

// Checked by the type checker: each line below a directive must not compile.

const db = drizzle({ client: new PGlite() })
const common = { db, prefix: 'exports', limit: 5, lease: '30s' } as const

const exports = new Semaphore(common)
new Semaphore({ ...common, durable: false, hashKeys: true, timeout: false, coalesce: true })
new Semaphore({ ...common, durable: common.prefix.length > 5 })
new Semaphore({ ...common, synchronousCommit: true })
new Semaphore({ ...common, durable: true, synchronousCommit: true })
// @ts-expect-error an UNLOGGED table has no WAL to wait for
new Semaphore({ ...common, durable: false, synchronousCommit: true })
// @ts-expect-error a lease has an end
new Semaphore({ db, prefix: 'exports', limit: 5 })
// @ts-expect-error no such unit
new Semaphore({ ...common, lease: '1w' })
// @ts-expect-error it has no algorithm
new Semaphore({ ...common, limiter: Ratelimit.fixedWindow(5, '1m') })
// @ts-expect-error the statements of slots cannot be sent to one server
new Semaphore({ ...common, use: [citus()] })
// @ts-expect-error nothing is charged, so no share of it is crossed
new Semaphore({ ...common, thresholds: [1] })
// @ts-expect-error nor does anything make an entry
new Semaphore({ ...common, use: [ledger(async () => {})] })
// @ts-expect-error a lease needs the database
new Semaphore({ ...common, onError: 'allow' })
// @ts-expect-error slots are not charged in advance
new Semaphore({ ...common, lease: { tokens: 50, for: '1s' } })
// @ts-expect-error
export const configured: SemaphoreConfig = { ...common, dryRun: true }

export async function leases(api: Ratelimit): Promise<void> {
  await using job = await exports.acquire('key', { timeout: '10s', signal: AbortSignal.timeout(5) })
  // @ts-expect-error what was denied is no lease
  void job.fence
  if (job.success) {
    const [fence, signal]: [number, AbortSignal] = [job.fence, job.signal]
    const extended: boolean = await job.extend()
    await db.transaction((tx) => job.release({ tx }))
    void [fence, signal, extended]
  }
  await exports.cleanup()
  await exports.acquire('key', { limit: 10, lease: '1m' })
  // @ts-expect-error a lease has no rate
  await exports.acquire('key', { rate: 2 })
  // @ts-expect-error nor a limiter
  await exports.acquire('key', { limiter: Ratelimit.fixedWindow(5, '1m') })
  // @ts-expect-error it limits how much runs at once, and not the rate of calls
  await exports.limit('key')
  // @ts-expect-error
  await limitAll([{ ratelimit: exports, key: 'key' }])
  // @ts-expect-error it limits the rate of calls
  await api.acquire('key')
}

export async function holders(): Promise<void> {
  const [holder]: Holder[] = await db.transaction((tx) => exports.holders('key', { tx }))
  const slot: number | undefined = holder?.slot
  // @ts-expect-error a slot that another transaction holds has no known end
  const expires: number | undefined = holder && (holder.expires satisfies number)
  // @ts-expect-error all plans share the slots
  await exports.holders('key', { limit: 5 })
  void [slot, expires]
}
