import { drizzle } from 'drizzle-orm/node-postgres'
import { Ratelimit, type SpendRequest } from '../../src/index.ts'
import { makeKeys, PLENTY } from '../contenders/contender.ts'
import { flexibleRedis } from '../contenders/flexible.ts'
import { anyOf, keyNumbers } from '../measure.ts'
import type { Connections } from '../server/connections.ts'
import { type Call, measureCalls } from './calls.ts'
import { type Bench, type Load, withDatabase } from './load.ts'

const KEYS = 1_000
export const LIMIT = 'limit'
export const ONE_TABLE = 'limitAll of two limits of one table'
export const TWO_TABLES = 'limitAll of two limits of two tables'
export const SPEND = 'spend of two limits'
export const SPEND_REST = 'spend of two limits, the first is used up'
export const RESERVE_COMMIT = 'reserve and commit, pairs'
export const FORCE = 'limit with force'
export const REFUND = 'limit with a negative rate'
export const REDIS_TWICE = 'rate-limiter-flexible, Redis, called twice, not all or none'

/** The calls of several limits, and those that charge whatever is left, beside the single check. */
export const SEVERAL: readonly Load[] = [1, 64].map((callers) => ({
  name: `several-${callers}`,
  title: `several limits, ${callers === 1 ? '1 caller' : `${callers} callers`}`,
  run: (bench: Bench) =>
    withDatabase(bench, async (connections) => {
      const redis = process.env['REDIS_URL'] ? [await redisTwice(connections)] : []
      const calls = [...callsOf(await limitsOn(connections)), ...redis]
      const outcome = await measureCalls(bench, calls, { callers, key: anyOf(KEYS) })
      for (const { close } of redis) await close()
      return outcome
    }),
}))

interface Limits {
  readonly user: Ratelimit
  readonly address: Ratelimit
  readonly quota: Ratelimit
  readonly usedUp: Ratelimit
}

/**
 * Limits whose rows exist. Half of each is taken, so a refund gives something back and every call is admitted.
 */
async function limitsOn({ pool }: Pick<Connections, 'pool'>): Promise<Limits> {
  const db = drizzle({ client: pool })
  const limiter = Ratelimit.tokenBucket(PLENTY, '1h', PLENTY)
  const limits = {
    user: new Ratelimit({ db, limiter, prefix: 'user' }),
    address: new Ratelimit({ db, limiter, prefix: 'address' }),
    quota: new Ratelimit({ db, limiter, prefix: 'quota', durable: true }),
    usedUp: new Ratelimit({ db, limiter: Ratelimit.tokenBucket(1, '1h', 1), prefix: 'used up' }),
  }
  for (const ratelimit of Object.values(limits)) {
    const rate = ratelimit === limits.usedUp ? 1 : PLENTY / 2
    await makeKeys({ check: async (key) => (await ratelimit.limit(key, { rate })).success }, keyNumbers(KEYS))
  }
  return limits
}

/** The second limit counts by another key, as one for addresses does beside one for users. */
const other = anyOf(KEYS)

function callsOf({ user, address, quota, usedUp }: Limits): readonly Call[] {
  return [
    { name: LIMIT, check: async (key) => (await user.limit(key)).success },
    { name: ONE_TABLE, check: allOf(user, address) },
    { name: TWO_TABLES, check: allOf(user, quota) },
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

function allOf(first: Ratelimit, second: Ratelimit): Call['check'] {
  return async (key) => (await Ratelimit.limitAll(requestsOf(first, second, key))).success
}

function spendOf(first: Ratelimit, second: Ratelimit): Call['check'] {
  return async (key) => (await Ratelimit.spend(requestsOf(first, second, key), { rate: 1 })).success
}

function requestsOf(first: Ratelimit, second: Ratelimit, key: string): SpendRequest[] {
  return [
    { ratelimit: first, key },
    { ratelimit: second, key: other() },
  ]
}

/** What an application does that has two limits there. If the second denies, the first is charged anyway. */
async function redisTwice(connections: Connections): Promise<Call & { close(): Promise<void> }> {
  const { check, close } = await flexibleRedis.open(connections)
  const twice = async (key: string) => (await check(key)) && check(`address of ${other()}`)
  await makeKeys({ check: twice }, keyNumbers(KEYS))
  return { name: REDIS_TWICE, check: twice, store: 'elsewhere', close }
}
