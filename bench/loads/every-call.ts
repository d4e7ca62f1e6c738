import { TransactionRollbackError } from 'drizzle-orm'
import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import { Credits } from '../../src/credits/index.ts'
import { checkTables, limitAll, Ratelimit } from '../../src/index.ts'
import { blocks, lockout } from '../../src/lockout/index.ts'
import { closePeriods, type OneLimitRows, Quota, reserveAll, spend } from '../../src/quota/index.ts'
import { usage } from '../../src/reports/index.ts'
import { makeKeys, PLENTY } from '../contenders/contender.ts'
import { defaultLimiter, defaultQuota } from '../contenders/this-package.ts'
import { keyNumbers } from '../measure.ts'
import { type Call, callersOf, limitOf, measureCalls, otherKey, requestsOf } from './calls.ts'
import { denialsOn, graceOn, namesOn, onceOn, turnsOn } from './feature-calls.ts'
import { KEYS, withRows } from './known-rows.ts'
import { type Bench, type Load, withDatabase } from './load.ts'
import { membersOn, routesOn, waitsOn } from './wing-calls.ts'

/** The public calls that no other load measures, so that none is slow without anybody knowing. */
export const EVERY_CALL: readonly Load[] = [1, 64].map((callers) => ({
  name: `every-call-${callers}`,
  title: `every other call, ${callersOf(callers)}`,
  run: (bench: Bench) =>
    withDatabase(bench, async ({ pool }) => {
      const db = drizzle({ client: pool })
      const groups = [
        ...[checksOn, settlingsOn, graceOn, onceOn, namesOn, turnsOn, waitsOn, membersOn, routesOn],
        ...[denialsOn, upkeepOn],
      ]
      const calls: Call[] = []
      for (const callsOn of groups) calls.push(...(await callsOn(db)))
      return measureCalls(bench, calls, callers)
    }),
}))

const limiter = Ratelimit.tokenBucket(PLENTY, '1h', PLENTY)

async function checksOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const user = await withRows(defaultLimiter(db, 'user'))
  const quota = await withRows(new Ratelimit({ db, limiter, prefix: 'quota', durable: true }))
  const blockable = await withRows(new Ratelimit({ db, limiter, prefix: 'blockable', use: [blocks()] }))
  const never = lockout(Number.POSITIVE_INFINITY, '1h', { block: '1h' })
  const logins = await withRows(new Ratelimit({ db, limiter: never, prefix: 'lockout' }))
  return [
    limitOf(user),
    { name: 'limit, durable', check: async (key) => (await quota.limit(key)).success },
    {
      name: 'limit with atLeast',
      check: async (key) => (await user.limit(key, { rate: 2, atLeast: 1 })).success,
    },
    { name: 'limit with blocks', check: async (key) => (await blockable.limit(key)).success },
    {
      name: 'limitAll with a lockout',
      async check(key) {
        const requests = [user, logins].map((ratelimit) => ({ ratelimit, key }))
        return (await limitAll(requests)).success
      },
    },
    {
      name: 'getRemaining and limit, pairs',
      check: async (key) => (await user.getRemaining(key)).remaining > 0 && (await user.limit(key)).success,
    },
    { name: 'blockUntilReady', check: async (key) => (await user.blockUntilReady(key, '1s')).success },
    {
      name: 'limitAll of six keys',
      async check(key) {
        const requests = [user, quota, user, quota, user, quota].map((ratelimit, place) => ({
          ...{ ratelimit, key: place === 0 ? key : otherKey() },
        }))
        return (await limitAll(requests)).success
      },
    },
    {
      name: 'getRemainingAll of ten keys',
      check: async () => (await user.getRemainingAll(Array.from({ length: 10 }, otherKey))).length === 10,
    },
  ]
}

async function settlingsOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const tokens = await withRows(defaultQuota(db, 'tokens'))
  const spending = await withRows(defaultLimiter(db, 'spending'))
  const credits = new Credits({ db, prefix: 'credits', durable: true })
  const grant = async (key: string) => (await credits.grant(key, 1)).remaining > 0
  await makeKeys({ check: grant }, keyNumbers(KEYS))
  return [
    {
      name: 'reserveAll of two and commit, pairs',
      async check(key) {
        const requests = requestsOf(tokens, spending, key).map((request) => ({ ...request, rate: 2 }))
        const reserved = await reserveAll(requests)
        if (reserved.success) await reserved.commit([1, 1])
        return reserved.success
      },
    },
    {
      name: 'spend of two and release, pairs',
      async check(key) {
        const spent = await spend(requestsOf(tokens, spending, key), { rate: 1 })
        if (spent.success) await spent.release()
        return spent.success
      },
    },
    {
      name: 'spend of two and commit of more, pairs',
      async check(key) {
        const spent = await spend(requestsOf(tokens, spending, key), { rate: 1 })
        if (spent.success) await spent.commit(2)
        return spent.success
      },
    },
    {
      name: 'reserve with a name and settle, pairs',
      async check(key) {
        const name = { key, id: crypto.randomUUID() }
        const reserved = await tokens.reserve(key, { rate: 2, id: name.id, expires: '10m' })
        return reserved.success && (await tokens.settle(name, 1)).success
      },
    },
    { name: 'grant', check: grant },
  ]
}

async function upkeepOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const used = await withRows(defaultLimiter(db, 'used'))
  const window = Ratelimit.fixedWindow(PLENTY, '1h')
  const ended = new Quota({
    ...{ db, limiter: window, prefix: 'ended', keepEnded: true },
    clock: () => new Date(Date.now() - 2 * 3_600_000),
  })
  await withRows(ended)
  const plans = await withRows(new Quota({ db, limiter: window, prefix: 'plans', keepEnded: true }))
  const reset = defaultLimiter(db, 'reset')
  return [
    {
      name: 'limit and resetUsedTokens, pairs',
      async check(key) {
        const { success } = await reset.limit(key)
        await reset.resetUsedTokens(key)
        return success
      },
    },
    { name: 'cleanup, nothing expired', check: async () => (await used.cleanup()) === 0 },
    {
      name: `usage, the top 10 of ${KEYS.toLocaleString('en')} keys`,
      check: async () => (await usage({ db, prefix: 'used', limiter, durable: false })).length === 10,
    },
    {
      name: 'changePlan',
      async check(key) {
        await plans.changePlan(key, { to: window })
        return true
      },
    },
    {
      name: 'closePeriods of 10 keys, rolled back',
      check: () => closeAndRollBack(db, { db, prefix: 'ended', limiter: window, durable: true }, 10),
    },
    { name: 'checkTables', check: async () => (await checkTables(db)).length === 0 },
  ]
}

/** Returns whether it has closed as many as it might. They are there again for the next call. */
async function closeAndRollBack(db: NodePgDatabase, rows: OneLimitRows, limit: number): Promise<boolean> {
  let closed = 0
  const rolledBack = db.transaction(async (tx) => {
    closed = (await closePeriods(rows, { tx, limit })).length
    tx.rollback()
  })
  await rolledBack.catch((error) => {
    if (!(error instanceof TransactionRollbackError)) throw error
  })
  return closed === limit
}
