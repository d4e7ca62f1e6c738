import { and, asc, eq } from 'drizzle-orm'
import { remainingOf, resetOf, usage, usedOf } from 'drizzle-ratelimit/reports'
import type { RateLimitTable } from '../../schema/index.ts'
import { calendarWindow } from '../../src/calendar/index.ts'
import { type Limiter, limitAll, Ratelimit } from '../../src/index.ts'
import { closePeriods, Quota, reserveAll, spend } from '../../src/quota/index.ts'
import type { Laid } from './layout.ts'

/** The time of all calls, which makes their answers the same on every server. */
export const NOW: Date = new Date('2026-03-10T12:00:00Z')

export interface Call {
  readonly limiter: Limiter
  readonly laid: Laid
  readonly db: ReturnType<Laid['at']>
  /** A prefix of its own. */
  readonly prefix: string
  /** Two limiters, of different tables. */
  readonly a: Quota
  readonly b: Quota
}

/** What a test calls and compares. */
type Run = (call: Call) => Promise<unknown>

export const limiters: Readonly<Record<string, Limiter>> = {
  'token bucket': Ratelimit.tokenBucket(5, '10s', 20),
  'steady bucket': Ratelimit.tokenBucket(5, '10s', 20, { refill: 'continuous', initialTokens: 10 }),
  gcra: Ratelimit.gcra(20, '1m', { burst: 20 }),
  'fixed window': Ratelimit.fixedWindow(20, '1m'),
  'sliding window': Ratelimit.slidingWindow(20, '1m'),
  'calendar window': calendarWindow(20, 'month'),
}

/** The limiters of a call. */
export function callOn(laid: Laid, db: Call['db'], limiter: Limiter, prefix: string): Call {
  const { tables, use } = laid
  const options = { db, tables, use, limiter, clock: () => NOW, cleanupProbability: 0 }
  const a = new Quota({ ...options, prefix, durable: false })
  const b = new Quota({ ...options, prefix, durable: true })
  return { limiter, laid, db, prefix, a, b }
}

export const keys: readonly string[] = ['k0', 'k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7']

async function each(limit: (key: string) => Promise<unknown>): Promise<unknown[]> {
  return Promise.all(keys.map(limit))
}

function rowsOf({ laid: { use }, limiter, prefix, db }: Call, table: RateLimitTable) {
  const options = { clock: () => NOW, use }
  return db
    .select({
      key: table.key,
      used: usedOf(table, limiter, options),
      left: remainingOf(table, limiter, options),
      reset: resetOf(table, limiter, options),
    })
    .from(table)
    .where(and(eq(table.prefix, prefix)))
    .orderBy(asc(table.key))
}

/** Calls that every limiter answers. */
export const calls: Readonly<Record<string, Run>> = {
  'limit, a new key': ({ a }) => a.limit('k'),
  'limit, a known key': async ({ a }) => [await a.limit('k'), await a.limit('k', { rate: 3 })],
  'limit, many keys': ({ a }) => each((key) => a.limit(key)),
  'limit, many known keys': async ({ a }) => [
    await each((key) => a.limit(key)),
    await each((key) => a.limit(key)),
  ],
  'limit, one key at once': async ({ a }) =>
    (await Promise.all(keys.map(() => a.limit('k', { rate: 4 })))).length,
  'limit, denied': async ({ a }) => [
    await a.limit('k', { rate: 99 }),
    await a.limit('k'),
    await a.limit('k', { rate: 99 }),
  ],
  'limit with atLeast': async ({ a }) => [
    await a.limit('k', { rate: 6 }),
    await a.limit('k', { rate: 20, atLeast: 2 }),
  ],
  'limit, rate 0': ({ a }) => a.limit('k', { rate: 0 }),
  'limit, forced': async ({ a }) => [
    await a.limit('k', { rate: 50, force: true }),
    await a.getRemaining('k'),
  ],
  'a refund': async ({ a }) => [await a.limit('k', { rate: 5 }), await a.limit('k', { rate: -3 })],
  'a refund to a new key': async ({ a }) => [await a.limit('k', { rate: -3 }), await a.getRemaining('k')],
  'a plan': async ({ a }) => [
    await a.limit('k'),
    await a.limit('k', { limiter: Ratelimit.fixedWindow(7, '1m') }),
  ],
  getRemaining: async ({ a }) => [await a.getRemaining('k'), await a.limit('k'), await a.getRemaining('k')],
  getRemainingAll: async ({ a }) => [
    await each((key) => a.limit(key)),
    await a.getRemainingAll([...keys, 'new']),
  ],
  blockUntilReady: ({ a }) => a.blockUntilReady('k', 0),
  resetUsedTokens: async ({ a }) => [
    await a.limit('k', { rate: 5 }),
    await a.resetUsedTokens('k'),
    await a.getRemaining('k'),
  ],
  'reserve and commit': async ({ b }) => settled(await b.reserve('k', { rate: 8 }), 3),
  'reserve and settle': async ({ b }) => {
    const reserved = await b.reserve('k', { rate: 8, id: 'job', expires: '1h' })
    return reserved.success ? b.settle({ key: 'k', id: 'job' }, 2) : reserved
  },
  'reserveAll over shards': async ({ a, b }) => {
    const reserved = await reserveAll([
      { ratelimit: a, key: 'k0', rate: 4 },
      { ratelimit: b, key: 'k3', rate: 5 },
    ])
    return reserved.success ? reserved.commit([1, 2]) : reserved
  },
  'limitAll, one key': ({ a, b }) => all(a, 'k', b, 'k', 2),
  'limitAll over shards': async ({ a, b }) => [
    await all(a, 'k0', b, 'k1', 2),
    await all(a, 'k0', b, 'k1', 2),
  ],
  'limitAll over shards, denied': async ({ a, b }) => [
    await all(a, 'k0', b, 'k1', 2),
    await all(a, 'k0', b, 'k1', 19),
    await a.getRemaining('k0'),
    await b.getRemaining('k1'),
  ],
  'limitAll over shards, new keys denied': async ({ a, b }) => [
    await all(a, 'k0', b, 'k1', 99),
    await a.getRemaining('k0'),
  ],
  'limitAll over shards with a refund': async ({ a, b }) => [
    await all(a, 'k0', b, 'k1', 5),
    await limitAll([
      { ratelimit: a, key: 'k0', rate: -2 },
      { ratelimit: b, key: 'k1', rate: 3 },
    ]),
  ],
  'limitAll of eight keys': ({ a }) => limitAll(keys.map((key) => ({ ratelimit: a, key }))),
  'spend over shards': async ({ a, b }) => spent(a, 'k0', b, 'k1', 14),
  'spend over shards, settled': async ({ a, b }) => {
    const settled = []
    for (const [place, actual] of [9, 27, 50].entries()) {
      const spent = await spend(
        [
          { ratelimit: a, key: `k${2 * place}` },
          { ratelimit: b, key: `k${2 * place + 1}` },
        ],
        { rate: 14 },
      )
      settled.push(spent.success && (await spent.commit(actual, { debt: place ? 'last' : 'first' })))
    }
    return [settled, await a.getRemainingAll(keys), await b.getRemainingAll(keys)]
  },
  'spend over shards of what there is': async ({ a, b }) => {
    const requests = [
      { ratelimit: a, key: 'k0' },
      { ratelimit: b, key: 'k1' },
    ]
    const spent = [await spend(requests, { rate: 33 }), await spend(requests, { rate: 33, atLeast: 2 })]
    return spent.map(({ success, granted, results }) => [success, granted, results])
  },
  'spend of one key': async ({ a, b }) => spent(a, 'k', b, 'k', 14),
  'in a transaction': ({ a, db }) =>
    db.transaction(async (tx) => [await a.limit('k', { tx }), await a.limit('k', { tx })]),
  'rolled back': async ({ a, db }) => {
    await db
      .transaction(async (tx) => {
        await a.limit('k', { tx, rate: 5 })
        tx.rollback()
      })
      .catch(() => {})
    return a.getRemaining('k')
  },
  'limitAll over shards in a transaction': async ({ a, b, db }) => [
    await db.transaction((tx) => all(a, 'k0', b, 'k1', 3, tx)),
    await db.transaction((tx) => all(a, 'k0', b, 'k1', 99, tx)),
    await a.getRemaining('k0'),
    await b.getRemaining('k1'),
  ],
  cleanup: async ({ a, db, limiter, prefix, laid: { tables, use } }) => {
    const past = () => new Date(NOW.getTime() - 90 * 86_400_000)
    const old = new Ratelimit({ db, limiter, prefix, tables, use, clock: past, cleanupProbability: 0 })
    await each((key) => old.limit(key))
    return [await a.cleanup(), await a.limit('k0'), await a.cleanup()]
  },
  usage: async ({ b, db, limiter, prefix, laid: { tables, use } }) => {
    await each((key) => b.limit(key, { rate: 1 + Number(key.slice(1)) }))
    return usage({ db, prefix, limiter, tables, use, clock: () => NOW, durable: true })
  },
  'usage by plan': async ({ b, db, limiter, prefix, laid: { tables, use } }) => {
    await each((key) => b.limit(key, { rate: 1 + Number(key.slice(1)) }))
    return usage({ db, prefix, limiterOf: () => limiter, tables, use, clock: () => NOW, durable: true })
  },
  'usedOf, remainingOf and resetOf': async (call) => {
    await each((key) => call.b.limit(key))
    return rowsOf(call, call.laid.tables.durable)
  },
}

/** Calls of limits with periods. */
export const callsOfPeriods: Readonly<Record<string, Run>> = {
  closePeriods: async (call) => {
    const { db, limiter, prefix, laid } = call
    await each((key) => call.b.limit(key, { rate: 2 }))
    const later = new Date(NOW.getTime() + 40 * 86_400_000)
    const rows = {
      db,
      prefix,
      limiter,
      durable: true,
      tables: laid.tables,
      use: laid.use,
      clock: () => later,
    }
    return db.transaction((tx) => closePeriods(rows, { tx }))
  },
}

async function settled(reserved: Awaited<ReturnType<Quota['reserve']>>, actual: number): Promise<unknown> {
  return reserved.success ? reserved.commit(actual) : reserved
}

async function all(
  a: Quota,
  one: string,
  b: Quota,
  other: string,
  rate: number,
  tx?: Parameters<Parameters<Call['db']['transaction']>[0]>[0],
): Promise<unknown> {
  const requests = [
    { ratelimit: a, key: one, rate },
    { ratelimit: b, key: other, rate },
  ]
  const { success, results, retryAfter } = await limitAll(requests, tx ? { tx } : {})
  return { success, results, retryAfter }
}

async function spent(a: Quota, one: string, b: Quota, other: string, rate: number): Promise<unknown> {
  const requests = [
    { ratelimit: a, key: one },
    { ratelimit: b, key: other },
  ]
  const first = await spend(requests, { rate })
  const second = await spend(requests, { rate })
  const { success, granted, results } = second
  return [first.success, first.granted, success, granted, results, await second.release()]
}
