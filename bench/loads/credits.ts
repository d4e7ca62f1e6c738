import { randomUUID } from 'node:crypto'
import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import { Credits } from '../../src/credits/index.ts'
import { limitAll } from '../../src/index.ts'
import { spend } from '../../src/quota/index.ts'
import { defaultLimiter } from '../contenders/this-package.ts'
import { keyNumbers } from '../measure.ts'
import { type Call, callersOf, measureCalls, otherKey } from './calls.ts'
import { withRows } from './known-rows.ts'
import { type Bench, type Load, withDatabase } from './load.ts'

/** How many keys have grants. All of the bench's keys would take many minutes to grant to. */
const KEYS = 1_000

const PLENTY = 1e9

/** The calls of credits, compared with a check on a balance. */
export const CREDITS: readonly Load[] = [1, 64].map((callers) => ({
  name: `credits-${callers}`,
  title: `credits that end, ${callersOf(callers)}`,
  run: (bench: Bench) =>
    withDatabase(bench, async ({ pool }) => {
      const db = drizzle({ client: pool })
      const keys = keyNumbers(KEYS)
      const balance = new Credits({ db, prefix: 'balance', durable: true })
      await Promise.all(keys.map((key) => balance.grant(key, PLENTY)))
      const calls: Call[] = [
        { name: 'limit, balance', check: async (key) => (await balance.limit(keyIn(keys, key))).success },
      ]
      for (const grants of [1, 3, 20]) {
        const credits = await creditsWith(db, grants, keys)
        calls.push({
          name: `limit, ${grants} live ${grants === 1 ? 'grant' : 'grants'}`,
          check: async (key) => (await credits.limit(keyIn(keys, key))).success,
        })
      }
      const credits = await creditsWith(db, 4, keys)
      const month = await withRows(defaultLimiter(db, 'month'), 1)
      const anyKey = () => keyIn(keys, otherKey())
      const requestsFor = (key: string) => [
        { ratelimit: month, key: keyIn(keys, key) },
        { ratelimit: credits, key: keyIn(keys, key) },
      ]
      calls.push(
        {
          name: 'spend of a bucket and 4 live grants',
          check: async (key) => (await spend(requestsFor(key), { rate: 1 })).success,
        },
        {
          name: 'limitAll of a bucket and 4 live grants',
          check: async (key) => (await limitAll(requestsFor(key))).success,
        },
        {
          name: 'grants, 4 live grants',
          check: async (key) => (await credits.grants(keyIn(keys, key))).length >= 4,
        },
        {
          name: 'getRemainingAll of ten keys, 4 live grants',
          check: async () =>
            (await credits.getRemainingAll(Array.from({ length: 10 }, anyKey))).length === 10,
        },
        {
          name: 'grant and voidGrant, pairs',
          async check(key) {
            const id = randomUUID()
            await credits.grant(keyIn(keys, key), 1, { id, expires: '1d', priority: 100 })
            return (await credits.voidGrant(keyIn(keys, key), id)) === 1
          },
        },
      )
      return measureCalls(bench, calls, callers)
    }),
}))

async function creditsWith(db: NodePgDatabase, grants: number, keys: readonly string[]) {
  const credits = new Credits({ db, dated: true, prefix: `credits ${grants}`, durable: true })
  for (let i = 0; i < grants; i++)
    await Promise.all(keys.map((key) => credits.grant(key, PLENTY, { id: `${i}`, expires: `${i + 30}d` })))
  return credits
}

/** One of the keys with grants for a key of the bench. */
function keyIn(keys: readonly string[], key: string): string {
  let sum = 0
  for (const letter of key) sum = (sum * 31 + letter.charCodeAt(0)) % keys.length
  return keys[sum] as string
}
