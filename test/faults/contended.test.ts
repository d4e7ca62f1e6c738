import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { type Database, limitAll, Ratelimit } from '../../src/index.ts'
import { spend } from '../../src/quota/index.ts'
import { useDatabase } from '../support/databases.ts'
import { waitingForLocks } from '../support/locks.ts'
import { errorOf, limiter, newPrefix, openPool, SECRET, useProxy } from './kit.ts'

// A timeout in a network that is silent is an outage. Behind a row that others hold, it is none: a client could
// hold the row, so `contended` says so, and `onError: 'allow'` lets no such call pass.

const database = useDatabase()
const network = useProxy(database)

// Only time that the test lets pass ends a call, so a busy machine changes nothing.
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
afterEach(() => void vi.useRealTimers())

const TIMEOUT_MS = 1_000
/** A call in a transaction of the limiter has charged nothing before its commit. */
const ENDED = /^(OUTCOME_UNKNOWN|TIMEOUT)$/

type Call = () => PromiseLike<unknown>
/** Makes a call whose row exists. */
type Ready = (db: Database, prefix: string) => Promise<Call>

const windowOn = (db: Database, prefix: string, config: object = {}) =>
  new Ratelimit({ db, limiter, prefix, cleanupProbability: 0, timeout: TIMEOUT_MS, ...config })

const calls: Readonly<Record<string, Ready>> = {
  limit: async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    await ratelimit.limit(SECRET)
    return () => ratelimit.limit(SECRET)
  },
  'limit with onEntries': async (db, prefix) => {
    const ratelimit = windowOn(db, prefix, { onEntries: () => {} })
    await ratelimit.limit(SECRET)
    return () => ratelimit.limit(SECRET)
  },
  'limit with a lease': async (db, prefix) => {
    const ratelimit = windowOn(db, prefix, { lease: { tokens: 5, for: '1m' } })
    await ratelimit.limit(SECRET)
    return () => ratelimit.limit(SECRET)
  },
  'limit with once': async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    await ratelimit.limit(SECRET)
    return () => ratelimit.limit(SECRET, { once: { id: 'job', for: '1d' } })
  },
  blockUntilReady: async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    await ratelimit.limit(SECRET)
    return () => ratelimit.blockUntilReady(SECRET, '1h')
  },
  limitAll: async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    const requests = [SECRET, 'other'].map((key) => ({ ratelimit, key }))
    await limitAll(requests)
    return () => limitAll(requests)
  },
  reserve: async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    await ratelimit.limit(SECRET)
    return () => ratelimit.reserve(SECRET, { rate: 2 })
  },
  'reserve with a name': async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    await ratelimit.limit(SECRET)
    return () => ratelimit.reserve(SECRET, { rate: 2, id: 'job', expires: '1h' })
  },
  commit: async (db, prefix) => {
    const reserved = await windowOn(db, prefix).reserve(SECRET, { rate: 2 })
    if (!reserved.success) throw new Error('denied')
    return () => reserved.commit(3)
  },
  settle: async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    await ratelimit.reserve(SECRET, { rate: 2, id: 'job', expires: '1h' })
    return () => ratelimit.settle({ key: SECRET, id: 'job' }, 3)
  },
  spend: async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    await ratelimit.limit(SECRET)
    return () => spend([{ ratelimit, key: SECRET }], { rate: 2 })
  },
  credits: async (db, prefix) => {
    const credits = new Ratelimit({
      ...{ db, prefix, limiter: Ratelimit.credits(), cleanupProbability: 0, timeout: TIMEOUT_MS },
    })
    await credits.grant(SECRET, 10, { id: 'first' })
    await credits.limit(SECRET)
    return () => credits.limit(SECRET)
  },
}

const resets: Readonly<Record<string, Ready>> = {
  resetUsedTokens: async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    await ratelimit.limit(SECRET)
    return () => ratelimit.resetUsedTokens(SECRET)
  },
  'resetUsedTokens of a bucket that starts with less': async (db, prefix) => {
    const bucket = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 3 })
    const ratelimit = windowOn(db, prefix, { limiter: bucket })
    await ratelimit.limit(SECRET)
    return () => ratelimit.resetUsedTokens(SECRET)
  },
}

const silent: Readonly<Record<string, Ready>> = { ...calls, ...resets }

/** The error of a call when its time is over. Before that, it has not ended. */
async function errorAtTimeout(call: Call, isSent: () => boolean | Promise<boolean>) {
  let hasEnded = false
  const ended = errorOf(call()).finally(() => {
    hasEnded = true
  })
  // What polls in Vitest lets the time pass.
  while (!hasEnded && !(await isSent())) await new Promise(setImmediate)
  await vi.advanceTimersByTimeAsync(TIMEOUT_MS - 1)
  expect(hasEnded).toBe(false)
  await vi.advanceTimersByTimeAsync(1)
  return ended
}

test.each(Object.entries(silent))('%s in a network that is silent is not contended', async (name, ready) => {
  const call = await ready(openPool(network.url).db, newPrefix(`silent ${name}`))
  let isMet = false
  network.proxy.fault = () => {
    isMet = true
    return 'stall before'
  }
  try {
    const error = await errorAtTimeout(call, () => isMet)
    expect(error).toMatchObject({ code: expect.stringMatching(ENDED), contended: false })
  } finally {
    network.proxy.cutAll()
  }
})

/** What happens to a call whose row a transaction holds. */
async function errorBehindRow(name: string, ready: Ready) {
  const prefix = newPrefix(`held ${name}`)
  const call = await ready(openPool(network.url).db, prefix)
  const holder = await database.client()
  try {
    await holder.query('begin')
    for (const table of ['rate_limit_ephemeral', 'rate_limit_durable'])
      await holder.query(`select 1 from ${table} where prefix like $1 for update`, [`%${prefix}`])
    // Those of the test before may not have ended.
    const before = await waitingForLocks(database)
    const hasCome = async () => (await waitingForLocks(database)).some((pid) => !before.includes(pid))
    return await errorAtTimeout(call, hasCome)
  } finally {
    await holder.query('rollback')
  }
}

test.each(Object.entries(calls))('%s behind a row that others hold is contended', async (...call) => {
  const error = await errorBehindRow(...call)
  expect(error).toMatchObject({ code: expect.stringMatching(ENDED), contended: true })
})

// Its one statement may wait, and cannot say whether it does.
test.each(Object.entries(resets))('%s behind a row that others hold ends by its timeout', async (...call) => {
  expect(await errorBehindRow(...call)).toMatchObject({ code: 'OUTCOME_UNKNOWN', contended: false })
})
