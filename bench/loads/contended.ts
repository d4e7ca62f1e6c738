import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { Semaphore } from '../../src/semaphore/index.ts'
import { makeKeys } from '../contenders/contender.ts'
import { defaultLimiter } from '../contenders/this-package.ts'
import { keyNumber, keyNumbers } from '../measure.ts'
import { type Call, LIMIT, limitOf, measureCalls, otherKey } from './calls.ts'
import { KEYS, withRows } from './known-rows.ts'
import { type Bench, type Load, withDatabase } from './load.ts'

const CALLERS = 64

/** The calls that wait or contend, each next to its plain case: keys that are known, free and many. */
export const contended: Load = {
  name: 'contended',
  title: `hot, new and used-up keys, ${CALLERS} callers`,
  run: (bench: Bench) =>
    withDatabase(bench, async ({ pool }) => {
      const db = drizzle({ client: pool })
      const calls: Call[] = []
      for (const callsOn of [checksOn, listsOn, waitsOn, slotsOn]) calls.push(...(await callsOn(db)))
      return measureCalls(bench, calls, CALLERS)
    }),
}

const HOT = keyNumber(0)

let news = 0
const newKey = () => `new:${news++}`

async function checksOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const user = await withRows(defaultLimiter(db, 'user'))
  const used = await withRows(defaultLimiter(db, 'used up', 1), 1)
  return [
    limitOf(user),
    { name: `${LIMIT}, hot key`, check: async () => (await user.limit(HOT)).success },
    { name: `${LIMIT}, new keys`, check: async () => (await user.limit(newKey())).success },
    { name: `${LIMIT}, used-up keys`, check: async (key) => !(await used.limit(key)).success },
    { name: `${LIMIT}, a hot used-up key`, check: async () => !(await used.limit(HOT)).success },
    reserveOf('reserve and commit, pairs', user, (key) => key),
    reserveOf('reserve and commit, pairs, hot key', user, () => HOT),
    reserveOf('reserve and commit, pairs, new keys', user, newKey),
  ]
}

function reserveOf(name: string, ratelimit: Ratelimit, keyFor: (key: string) => string): Call {
  return {
    name,
    async check(key) {
      const reserved = await ratelimit.reserve(keyFor(key), { rate: 2 })
      return reserved.success && (await reserved.commit(1)).success
    },
  }
}

async function listsOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const first = await withRows(defaultLimiter(db, 'first'))
  const second = await withRows(defaultLimiter(db, 'second'))
  const used = await withRows(defaultLimiter(db, 'used up', 1), 1)
  const both = async (one: string, other: string, limits = [first, second]) => {
    const [ratelimit, beside] = limits as [Ratelimit, Ratelimit]
    const requests = [
      { ratelimit, key: one },
      { ratelimit: beside, key: other },
    ]
    return (await limitAll(requests)).success
  }
  return [
    { name: 'limitAll of two', check: (key) => both(key, otherKey()) },
    { name: 'limitAll of two, one key is hot', check: (key) => both(HOT, key) },
    { name: 'limitAll of two, new keys', check: () => both(newKey(), newKey()) },
    {
      name: 'limitAll of two, one is used up',
      check: async (key) => !(await both(key, otherKey(), [first, used])),
    },
  ]
}

/** With and without a wait: 64 callers use more than a thousand units a second. */
async function waitsOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const user = await withRows(defaultLimiter(db, 'waiting user'))
  const rare = new Ratelimit({ db, limiter: Ratelimit.gcra(1_000, '1s'), prefix: 'rare' })
  const waitsFor = async (ratelimit: Ratelimit, key: string) =>
    (await ratelimit.blockUntilReady(key, '10s')).success
  return [
    { name: 'blockUntilReady', check: (key) => waitsFor(user, key) },
    { name: 'blockUntilReady, hot key', check: () => waitsFor(user, HOT) },
    { name: 'blockUntilReady, 1,000 a second of one key', check: () => waitsFor(rare, HOT) },
  ]
}

async function slotsOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const jobs = new Semaphore({ db, limit: CALLERS, lease: '30s', prefix: 'jobs', durable: false })
  const acquire = async (key: string) => {
    const job = await jobs.acquire(key)
    return job.success && (await job.release())
  }
  await makeKeys({ check: acquire }, keyNumbers(KEYS))
  return [
    { name: 'acquire and release, pairs', check: acquire },
    { name: 'acquire and release, pairs, hot key', check: () => acquire(HOT) },
    { name: 'acquire and release, pairs, new keys', check: () => acquire(newKey()) },
    {
      name: 'acquire and release, pairs, four callers for each slot',
      async check() {
        const job = await jobs.acquire('few', { limit: CALLERS / 4, timeout: '10s' })
        return job.success && (await job.release())
      },
    },
  ]
}
