import { drizzle } from 'drizzle-orm/node-postgres'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { spend } from '../../src/quota/index.ts'
import { makeKeys, PLENTY } from '../contenders/contender.ts'
import { flexibleRedis } from '../contenders/flexible.ts'
import { defaultLimiter } from '../contenders/this-package.ts'
import { keyNumber, keyNumbers } from '../measure.ts'
import type { Connections } from '../server/connections.ts'
import { withNetwork } from '../server/network.ts'
import { type Call, callersOf, limitAllOf, limitOf, measureCalls, otherKey, requestsOf } from './calls.ts'
import { KEYS, withRows } from './known-rows.ts'
import { type Bench, type Load, withDatabase } from './load.ts'

export const ONE_TABLE = 'limitAll of two limits of one table'
export const TWO_TABLES = 'limitAll of two limits of two tables'
export const SPEND = 'spend of two limits'
export const SPEND_REST = 'spend of two limits, the first is used up'
export const RESERVE_COMMIT = 'reserve and commit, pairs'
export const FORCE = 'limit with force'
export const REFUND = 'limit with a negative rate'
export const REDIS_TWICE = 'rate-limiter-flexible, Redis, called twice, not all or none'
export const EVERYBODY_ALONE = 'limit of a row for everybody'
export const EVERYBODY = 'limitAll of a row for everybody and one of 1,000'

/** The calls of several limits, and those that charge whatever is left, next to the single check. */
export const SEVERAL: readonly Load[] = [
  ...[1, 64].map((callers) => ({
    name: `several-${callers}`,
    title: `several limits, ${callersOf(callers)}`,
    run: (bench: Bench) =>
      withDatabase(bench, async (connections) => {
        const redis = process.env['REDIS_URL'] ? [await redisTwice(connections)] : []
        const outcome = await measureCalls(bench, [...(await callsOn(connections)), ...redis], callers)
        for (const { close } of redis) await close()
        return outcome
      }),
  })),
  {
    name: 'several-network',
    title: 'several limits, 64 callers, 1 ms of network',
    run: (bench) =>
      withDatabase(bench, (_direct, url) =>
        withNetwork(url, 1, async (connections) =>
          measureCalls(bench, await callsOverNetwork(connections), 64),
        ),
      ),
  },
]

async function callsOn({ pool }: Connections): Promise<readonly Call[]> {
  const db = drizzle({ client: pool })
  const limiter = Ratelimit.tokenBucket(PLENTY, '1h', PLENTY)
  const user = await withRows(defaultLimiter(db, 'user'))
  const address = await withRows(defaultLimiter(db, 'address'))
  const quota = await withRows(new Ratelimit({ db, limiter, prefix: 'quota', durable: true }))
  const usedUp = await withRows(defaultLimiter(db, 'used up', 1), 1)
  return [
    limitOf(user),
    { name: ONE_TABLE, check: limitAllOf(user, address) },
    { name: TWO_TABLES, check: limitAllOf(user, quota) },
    { name: SPEND, check: spendOf(user, address) },
    { name: SPEND_REST, check: spendOf(usedUp, address) },
    {
      name: RESERVE_COMMIT,
      async check(key) {
        const reserved = await user.reserve(key, { rate: 2 })
        return reserved.success && (await reserved.commit(1)).success
      },
    },
    { name: FORCE, check: async (key) => (await user.limit(key, { force: true })).success },
    { name: REFUND, check: async (key) => (await user.limit(key, { rate: -1 })).success },
    { name: 'getRemaining', check: async (key) => (await user.getRemaining(key)).remaining > 0 },
  ]
}

function spendOf(first: Ratelimit, second: Ratelimit): Call['check'] {
  return async (key) => (await spend(requestsOf(first, second, key), { rate: 1 })).success
}

/** What an application does that has two limits there. If the second denies, the first is charged anyway. */
async function redisTwice(connections: Connections): Promise<Call & { close(): Promise<void> }> {
  const { check, close } = await flexibleRedis.open(connections)
  const twice = async (key: string) => (await check(key)) && check(`address of ${otherKey()}`)
  await makeKeys({ check: twice }, keyNumbers(KEYS))
  return { name: REDIS_TWICE, check: twice, store: 'elsewhere', close }
}

/** A call that holds a row for several round trips lets few others have it. */
async function callsOverNetwork({ pool }: Connections): Promise<readonly Call[]> {
  const db = drizzle({ client: pool })
  const user = await withRows(defaultLimiter(db, 'user'))
  const address = await withRows(defaultLimiter(db, 'address'))
  const everybody = defaultLimiter(db, 'everybody')
  const all = keyNumber(0)
  return [
    limitOf(user),
    { name: ONE_TABLE, check: limitAllOf(user, address) },
    { name: EVERYBODY_ALONE, check: async () => (await everybody.limit(all)).success },
    {
      name: EVERYBODY,
      async check(key) {
        const requests = [
          { ratelimit: everybody, key: all },
          { ratelimit: user, key },
        ]
        return (await limitAll(requests)).success
      },
    },
  ]
}
