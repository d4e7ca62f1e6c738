import { expect, test } from 'vitest'
import { Credits } from '../../src/credits/index.ts'
import { type Database, limitAll, Ratelimit } from '../../src/index.ts'
import { Quota, reserveAll, settle, spend } from '../../src/quota/index.ts'
import { useDatabase } from '../support/databases.ts'
import { watch } from '../support/watch.ts'

// Calls that share a statement share its failure. Each still rejects with an error of its own.

const database = useDatabase()
const KEYS = Array.from({ length: 8 }, (_, i) => `key ${i}`)
const EVENT = { id: 'event', for: '1h' } as const
const NAME = { id: 'name', expires: '1h' } as const

/** A database that is away while `work` is under way. */
function leaving() {
  let isAway = false
  const { db } = watch(database.db, () => {
    if (isAway) throw Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
  })
  const during = async (work: () => Promise<unknown>) => {
    isAway = true
    try {
      return await work()
    } finally {
      isAway = false
    }
  }
  return { db, during }
}

let prefixes = 0
function limitsOf(db: Database) {
  const common = { db, durable: true, timeout: false, cleanupProbability: 0 } as const
  const limiter = Ratelimit.fixedWindow(100, '1d')
  return [
    new Quota({ ...common, prefix: `plain ${++prefixes}`, limiter }),
    new Credits({ ...common, prefix: `credits ${prefixes}`, dated: true }),
  ] as const
}

type Limits = ReturnType<typeof limitsOf>
const requestsOf = ([plain, credits]: Limits, key: string) => [
  { ratelimit: plain, key, rate: 2 },
  { ratelimit: credits, key, rate: 2 },
]
const sourcesOf = ([plain, credits]: Limits, key: string) => [
  { ratelimit: plain, key },
  { ratelimit: credits, key },
]

/** What is prepared for a key, and the call that is made while the database is away. */
const CALLS: Readonly<Record<string, (limits: Limits, key: string) => Promise<() => Promise<unknown>>>> = {
  limit:
    async ([plain], key) =>
    () =>
      plain.limit(key),
  'limit, of credits':
    async ([, credits], key) =>
    () =>
      credits.limit(key),
  'limit with once':
    async ([plain], key) =>
    () =>
      plain.limit(key, { once: EVENT }),
  limitAll: async (limits, key) => () => limitAll(requestsOf(limits, key)),
  reserve:
    async ([, credits], key) =>
    () =>
      credits.reserve(key),
  reserveAll: async (limits, key) => () => reserveAll(requestsOf(limits, key)),
  spend: async (limits, key) => () => spend(sourcesOf(limits, key), { rate: 2 }),
  settle: async ([plain], key) => {
    await plain.reserve(key, NAME)
    return () => plain.settle({ key, id: NAME.id }, 0)
  },
  settleAll: async (limits, key) => {
    await reserveAll(requestsOf(limits, key), NAME)
    return () => settle(sourcesOf(limits, key), NAME.id, { actual: [0, 0] })
  },
  settleSpent: async (limits, key) => {
    await spend(sourcesOf(limits, key), { rate: 2, ...NAME })
    return () => settle(sourcesOf(limits, key), NAME.id, { actual: 0 })
  },
  'commit of an estimate': async ([plain], key) => {
    const reserved = await plain.reserve(key)
    return async () => reserved.success && reserved.commit(0)
  },
  'release of an estimate of credits': async ([, credits], key) => {
    const reserved = await credits.reserve(key)
    return async () => reserved.success && reserved.release()
  },
  'commit of several estimates': async (limits, key) => {
    const reserved = await reserveAll(requestsOf(limits, key))
    return async () => reserved.success && reserved.commit([0, 0])
  },
  'commit of a shared cost': async (limits, key) => {
    const spent = await spend(sourcesOf(limits, key), { rate: 2 })
    return async () => spent.success && spent.commit(0)
  },
}

test.each(Object.entries(CALLS))('%s', async (_, prepare) => {
  const { db, during } = leaving()
  const limits = limitsOf(db)
  for (const key of KEYS) await limits[1].grant(key, 10, { id: 'grant' })
  const calls: (() => Promise<unknown>)[] = []
  for (const key of KEYS) calls.push(await prepare(limits, key))
  const errors: unknown[] = []
  await during(async function theCaller() {
    const noted = async (call: () => Promise<unknown>) => {
      try {
        await call()
      } catch (error) {
        errors.push(error)
      }
    }
    await Promise.all(calls.map(noted))
  })
  expect(errors).toHaveLength(KEYS.length)
  expect(new Set(errors).size).toBe(KEYS.length)
  for (const error of errors)
    expect(error).toMatchObject({ code: 'UNREACHABLE', stack: expect.stringContaining('noted') })
})
