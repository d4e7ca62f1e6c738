import { randomUUID } from 'node:crypto'
import type { NodePgDatabase } from 'drizzle-orm/node-postgres'
import { countDenials } from '../../src/denials/index.ts'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { block, blocks, lockout, unblock } from '../../src/lockout/index.ts'
import { Quota, reserveAll, settle, spend } from '../../src/quota/index.ts'
import { denied } from '../../src/reports/index.ts'
import { schedule } from '../../src/schedule/index.ts'
import { Semaphore } from '../../src/semaphore/index.ts'
import { makeKeys, PLENTY } from '../contenders/contender.ts'
import { defaultLimiter } from '../contenders/this-package.ts'
import { keyNumbers } from '../measure.ts'
import { type Call, requestsOf } from './calls.ts'
import { KEYS, withRows } from './known-rows.ts'

/** Calls that are charged once for each id. */
export async function onceOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const events = await withRows(defaultLimiter(db, 'events'))
  const others = await withRows(defaultLimiter(db, 'others'))
  const newId = () => ({ id: randomUUID(), for: '1h' }) as const
  const again = async (key: string) => {
    const answer = await events.limit(key, { once: { id: key, for: '1h' } })
    return answer.success && answer.repeated === true
  }
  await Promise.all(keyNumbers(KEYS).map(again))
  return [
    {
      name: 'limit with once, a new id',
      check: async (key) => (await events.limit(key, { once: newId() })).success,
    },
    { name: 'limit with once, repeated', check: again },
    {
      name: 'limitAll of two with once, a new id',
      check: async (key) => (await limitAll(requestsOf(events, others, key), { once: newId() })).success,
    },
  ]
}

/** Estimates over two limits with a name, settled by the name. */
export async function namesOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const first = await withRows(defaultLimiter(db, 'named first'))
  const second = await withRows(defaultLimiter(db, 'named second'))
  const name = () => ({ id: randomUUID(), expires: '1h' }) as const
  return [
    {
      name: 'spend of two with a name and settle, pairs',
      async check(key) {
        const [requests, named] = [requestsOf(first, second, key), name()]
        const { success } = await spend(requests, { rate: 2, ...named })
        if (success) await settle(requests, named.id, { actual: 1 })
        return success
      },
    },
    {
      name: 'reserveAll of two with a name and settle, pairs',
      async check(key) {
        const [requests, named] = [requestsOf(first, second, key), name()]
        const { success } = await reserveAll(requests, named)
        if (success) (await settle(requests, named.id, { actual: [1, 0] })).results
        return success
      },
    },
  ]
}

/** Estimates whose period may have ended, and can still be corrected. */
export async function graceOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const limiter = Ratelimit.fixedWindow(PLENTY, '1h')
  const quota = await withRows(new Quota({ db, limiter, prefix: 'grace', keepEnded: true, grace: '1h' }))
  return [
    {
      name: 'reserve and commit with grace, pairs',
      async check(key) {
        const reserved = await quota.reserve(key, { rate: 2 })
        return reserved.success && (await reserved.commit(1)).success
      },
    },
    {
      name: 'reserve with a name and settle with grace, pairs',
      async check(key) {
        const id = randomUUID()
        const { success } = await quota.reserve(key, { rate: 2, id, expires: '1h' })
        return success && (await quota.settle({ key, id }, 1)).success
      },
    },
  ]
}

/** Slots, lockouts and places in line. */
export async function turnsOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const jobs = new Semaphore({ db, limit: 20, lease: '30s', prefix: 'jobs', durable: false })
  const acquire = async (key: string) => {
    const job = await jobs.acquire(key)
    return job.success && (await job.release())
  }
  await makeKeys({ check: acquire }, keyNumbers(KEYS))
  const limiter = lockout(PLENTY, '1h', { block: '1m' })
  const logins = await withRows(new Ratelimit({ db, limiter, prefix: 'logins' }), 1)
  const line = await withRows(defaultLimiter(db, 'line'))
  return [
    { name: 'acquire and release, pairs', check: acquire },
    { name: 'limit of a lockout', check: async (key) => (await logins.limit(key)).success },
    {
      name: 'schedule and cancel, pairs',
      async check(key) {
        const turn = await schedule(line, key, { within: '1h' })
        if (turn.success) await turn.cancel()
        return turn.success
      },
    },
  ]
}

/** Denials, the list of them, and blocks by hand. */
export async function denialsOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const config = { db, limiter: Ratelimit.tokenBucket(1, '1h', 1) }
  const used = await withRows(new Ratelimit({ ...config, prefix: 'used up' }), 1)
  const counted = await withRows(
    new Ratelimit({ ...config, prefix: 'counted', use: [countDenials({ top: 500 })] }),
    1,
  )
  for (const key of keyNumbers(KEYS)) await counted.limit(key)
  await counted.close()
  const blockable = await withRows(
    new Ratelimit({ ...config, prefix: 'blocked by hand', use: [blocks()] }),
    1,
  )
  return [
    { name: 'limit, denied', check: async (key) => !(await used.limit(key)).success },
    { name: 'limit, denied and counted', check: async (key) => !(await counted.limit(key)).success },
    {
      name: 'block and unblock, pairs',
      async check(key) {
        const { remaining } = await block(blockable, key, '1h')
        await unblock(blockable, key)
        return remaining === 0
      },
    },
    {
      name: 'denied, the top 10',
      async check() {
        const hourAgo = new Date(Date.now() - 3_600_000)
        const found = await denied({ db, prefix: 'counted', durable: false }, { since: hourAgo, top: 10 })
        return found.length === 10
      },
    },
  ]
}
