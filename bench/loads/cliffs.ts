import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import { calendarWindow } from '../../src/calendar/index.ts'
import { Credits } from '../../src/credits/index.ts'
import { type Limiter, Ratelimit } from '../../src/index.ts'
import { blocks } from '../../src/lockout/index.ts'
import { spend } from '../../src/quota/index.ts'
import { makeKeys, PLENTY } from '../contenders/contender.ts'
import { defaultLimiter, defaultQuota } from '../contenders/this-package.ts'
import { keyNumber, keyNumbers } from '../measure.ts'
import { type Call, callersOf, LIMIT, limitAllOf, limitOf, measureCalls } from './calls.ts'
import { KEYS, withRows } from './known-rows.ts'
import { type Load, withDatabase } from './load.ts'

const CALLERS = 64
const HOT = keyNumber(0)
const HOT_LIMIT = `${LIMIT}, hot key`
const NEW_LIMIT = `${LIMIT}, new keys`

/** A call that may cost several times what its plain case costs, and no more. */
interface Cliff {
  readonly call: string
  readonly against: string
  readonly atLeast: number
}

const CALLS = {
  tables: 'limitAll of two limits of two tables',
  newKeys: 'limitAll of two limits of two tables, new keys',
  reserve: 'reserve and commit, pairs',
  name: 'reserve with a name and settle, pairs',
  hotName: 'reserve with a name and settle, pairs, hot key',
  credits: 'credits: reserve and commit, pairs',
  hotCredits: 'credits: reserve and commit, pairs, hot key',
  spend: 'spend of a month and credits',
  blocks: 'limit with blocks',
  hotBlocks: 'limit with blocks, hot key',
  once: 'limit with once, new ids',
  plans: 'limit, each customer with a limit of its own',
} as const

/** What each call reaches as a share of its plain case. */
export const CLIFFS: readonly Cliff[] = [
  { call: CALLS.tables, against: LIMIT, atLeast: 0.4 },
  { call: CALLS.newKeys, against: NEW_LIMIT, atLeast: 0.35 },
  { call: CALLS.reserve, against: LIMIT, atLeast: 0.35 },
  { call: CALLS.name, against: LIMIT, atLeast: 0.15 },
  { call: CALLS.hotName, against: HOT_LIMIT, atLeast: 0.05 },
  { call: CALLS.credits, against: LIMIT, atLeast: 0.2 },
  { call: CALLS.hotCredits, against: HOT_LIMIT, atLeast: 0.1 },
  { call: CALLS.spend, against: LIMIT, atLeast: 0.25 },
  { call: CALLS.blocks, against: LIMIT, atLeast: 0.35 },
  { call: CALLS.hotBlocks, against: HOT_LIMIT, atLeast: 0.3 },
  { call: CALLS.once, against: LIMIT, atLeast: 0.25 },
  { call: CALLS.plans, against: LIMIT, atLeast: 0.7 },
]

export const CLIFFS_LOAD = 'cliffs'

/** The calls that need more than one row or statement, next to the check that needs one of each. */
export const cliffs: Load = {
  name: CLIFFS_LOAD,
  title: `calls of several rows or statements, ${callersOf(CALLERS)}`,
  run: (bench) =>
    withDatabase(bench, async ({ pool }) => {
      const db = drizzle({ client: pool })
      const calls: Call[] = []
      for (const callsOn of [checksOn, namesOn, creditsOn]) calls.push(...(await callsOn(db)))
      return measureCalls(bench, calls, CALLERS)
    }),
}

const limiter = Ratelimit.tokenBucket(PLENTY, '1h', PLENTY)

let news = 0
const newKey = () => `new:${news++}`

async function checksOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const user = await withRows(defaultLimiter(db, 'user'))
  const quota = await withRows(new Ratelimit({ db, limiter, prefix: 'quota', durable: true }))
  const blockable = await withRows(new Ratelimit({ db, limiter, prefix: 'blockable', use: [blocks()] }))
  const plans = new Map<string, Limiter>()
  const newKeys = limitAllOf(user, quota, newKey)
  const blockablePasses = async (key: string) => (await blockable.limit(key)).success
  return [
    limitOf(user),
    { name: HOT_LIMIT, check: async () => (await user.limit(HOT)).success },
    { name: NEW_LIMIT, check: async () => (await user.limit(newKey())).success },
    { name: CALLS.tables, check: limitAllOf(user, quota) },
    { name: CALLS.newKeys, check: () => newKeys(newKey()) },
    { name: CALLS.blocks, check: blockablePasses },
    { name: CALLS.hotBlocks, check: () => blockablePasses(HOT) },
    {
      name: CALLS.once,
      async check(key) {
        const once = { id: crypto.randomUUID(), for: '1h' } as const
        return (await user.limit(key, { once })).success
      },
    },
    {
      name: CALLS.plans,
      async check(key) {
        const tokens = PLENTY + plans.size
        const plan = plans.get(key) ?? Ratelimit.tokenBucket(tokens, '1h', tokens)
        plans.set(key, plan)
        return (await user.limit(key, { limiter: plan })).success
      },
    },
  ]
}

async function namesOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const tokens = await withRows(defaultQuota(db, 'tokens'))
  const named = async (key: string) => {
    const id = crypto.randomUUID()
    const { success } = await tokens.reserve(key, { rate: 2, id, expires: '1h' })
    return success && (await tokens.settle({ key, id }, 1)).success
  }
  return [
    {
      name: CALLS.reserve,
      async check(key) {
        const reserved = await tokens.reserve(key, { rate: 2 })
        return reserved.success && (await reserved.commit(1)).success
      },
    },
    { name: CALLS.name, check: named },
    { name: CALLS.hotName, check: () => named(HOT) },
  ]
}

async function creditsOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const credits = new Credits({ db, dated: true, prefix: 'credits', durable: true })
  const grant = async (key: string) => {
    const { remaining } = await credits.grant(key, PLENTY, { id: crypto.randomUUID(), expires: '30d' })
    return remaining > 0
  }
  for (let grants = 0; grants < 2; grants++) await makeKeys({ check: grant }, keyNumbers(KEYS))
  const perMonth = calendarWindow(PLENTY, 'month')
  const month = await withRows(new Ratelimit({ db, limiter: perMonth, prefix: 'month', durable: true }))
  const reserved = async (key: string) => {
    const estimate = await credits.reserve(key, { rate: 2 })
    return estimate.success && (await estimate.commit(1)).success
  }
  return [
    { name: CALLS.credits, check: reserved },
    { name: CALLS.hotCredits, check: () => reserved(HOT) },
    {
      name: CALLS.spend,
      async check(key) {
        const requests = [
          { ratelimit: month, key },
          { ratelimit: credits, key },
        ]
        return (await spend(requests, { rate: 1 })).success
      },
    },
  ]
}
