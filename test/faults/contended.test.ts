import { ledger } from 'drizzle-ratelimit/ledger'
import { prefetch } from 'drizzle-ratelimit/prefetch'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Credits } from '../../src/credits/index.ts'
import { type Database, limitAll, Ratelimit } from '../../src/index.ts'
import { Quota, spend } from '../../src/quota/index.ts'
import { allowed } from '../support/allowed.ts'
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
  new Quota({ db, limiter, prefix, cleanupProbability: 0, timeout: TIMEOUT_MS, durable: false, ...config })

/** A call on a limit whose row exists. */
const onRow =
  (callOn: (ratelimit: Quota) => PromiseLike<unknown>, config: object = {}): Ready =>
  async (db, prefix) => {
    const ratelimit = windowOn(db, prefix, config)
    await ratelimit.limit(SECRET)
    return () => callOn(ratelimit)
  }

const calls: Readonly<Record<string, Ready>> = {
  limit: onRow((ratelimit) => ratelimit.limit(SECRET)),
  'limit with a ledger': onRow((ratelimit) => ratelimit.limit(SECRET), { use: [ledger(async () => {})] }),
  'limit with prefetch': onRow((ratelimit) => ratelimit.limit(SECRET), {
    use: [prefetch({ tokens: 5, for: '1m' })],
  }),
  'limit with once': onRow((ratelimit) => ratelimit.limit(SECRET, { once: { id: 'job', for: '1d' } })),
  blockUntilReady: onRow((ratelimit) => ratelimit.blockUntilReady(SECRET, '1h')),
  limitAll: async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    const requests = [SECRET, 'other'].map((key) => ({ ratelimit, key }))
    await limitAll(requests)
    return () => limitAll(requests)
  },
  reserve: onRow((ratelimit) => ratelimit.reserve(SECRET, { rate: 2 })),
  'reserve with a name': onRow((ratelimit) =>
    ratelimit.reserve(SECRET, { rate: 2, id: 'job', expires: '1h' }),
  ),
  commit: async (db, prefix) => {
    const reserved = allowed(await windowOn(db, prefix).reserve(SECRET, { rate: 2 }))
    return () => reserved.commit(3)
  },
  settle: async (db, prefix) => {
    const ratelimit = windowOn(db, prefix)
    await ratelimit.reserve(SECRET, { rate: 2, id: 'job', expires: '1h' })
    return () => ratelimit.settle({ key: SECRET, id: 'job' }, 3)
  },
  spend: onRow((ratelimit) => spend([{ ratelimit, key: SECRET }], { rate: 2 })),
  credits: async (db, prefix) => {
    const credits = new Credits({
      ...{ db, prefix, dated: true, cleanupProbability: 0, timeout: TIMEOUT_MS },
    })
    await credits.grant(SECRET, 10, { id: 'first' })
    await credits.limit(SECRET)
    return () => credits.limit(SECRET)
  },
}

const resets: Readonly<Record<string, Ready>> = {
  resetUsedTokens: onRow((ratelimit) => ratelimit.resetUsedTokens(SECRET)),
  'resetUsedTokens of a bucket that starts with less': onRow(
    (ratelimit) => ratelimit.resetUsedTokens(SECRET),
    { limiter: Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 3 }) },
  ),
}

/** What keeps a call from ending. */
interface Hindrance {
  /** Whether the call has come to it. */
  isMet(): boolean | Promise<boolean>
  end(): unknown
}

/** The error of a call when its time is over. Before that, it has not ended. */
async function errorOfCall(
  name: string,
  ready: Ready,
  hinder: (prefix: string) => Hindrance | Promise<Hindrance>,
) {
  const prefix = newPrefix(name)
  const call = await ready(openPool(network.url).db, prefix)
  const { isMet, end } = await hinder(prefix)
  try {
    let hasEnded = false
    const ended = errorOf(call()).finally(() => {
      hasEnded = true
    })
    // What polls in Vitest lets the time pass.
    while (!hasEnded && !(await isMet())) await new Promise(setImmediate)
    await vi.advanceTimersByTimeAsync(TIMEOUT_MS - 1)
    expect(hasEnded).toBe(false)
    await vi.advanceTimersByTimeAsync(1)
    return await ended
  } finally {
    await end()
  }
}

function silence(): Hindrance {
  let isMet = false
  network.proxy.fault = () => {
    isMet = true
    return 'stall before'
  }
  return { isMet: () => isMet, end: () => network.proxy.cutAll() }
}

/** A transaction that holds the rows of a limiter. */
async function heldRow(prefix: string): Promise<Hindrance> {
  const holder = await database.client()
  await holder.query('begin')
  for (const table of ['rate_limit_ephemeral', 'rate_limit_durable'])
    await holder.query(`select 1 from ${table} where prefix like $1 for update`, [`%${prefix}`])
  // Those of the test before may not have ended.
  const before = await waitingForLocks(database)
  return {
    isMet: async () => (await waitingForLocks(database)).some((pid) => !before.includes(pid)),
    end: () => holder.query('rollback'),
  }
}

test.each(Object.entries({ ...calls, ...resets }))(
  '%s in a network that is silent is not contended',
  async (...call) => {
    const error = await errorOfCall(...call, silence)
    expect(error).toMatchObject({ code: expect.stringMatching(ENDED), contended: false })
  },
)

test.each(Object.entries(calls))('%s behind a row that others hold is contended', async (...call) => {
  const error = await errorOfCall(...call, heldRow)
  expect(error).toMatchObject({ code: expect.stringMatching(ENDED), contended: true })
})

// Its one statement may wait, and cannot say whether it does.
test.each(Object.entries(resets))('%s behind a row that others hold ends by its timeout', async (...call) => {
  expect(await errorOfCall(...call, heldRow)).toMatchObject({ code: 'OUTCOME_UNKNOWN', contended: false })
})
