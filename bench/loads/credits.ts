import { drizzle } from 'drizzle-orm/node-postgres'
import { Ratelimit } from '../../src/index.ts'
import { keyNumbers } from '../measure.ts'
import { type Call, callersOf, measureCalls } from './calls.ts'
import { type Bench, type Load, withDatabase } from './load.ts'

/** How many keys have grants. All of the bench's keys would take many minutes to grant to. */
const KEYS = 200

const PLENTY = 1e9

/** A check on credits with some live grants, compared with one on a balance. */
export const CREDITS: readonly Load[] = [1, 64].map((callers) => ({
  name: `credits-${callers}`,
  title: `credits that end, ${callersOf(callers)}`,
  run: (bench: Bench) =>
    withDatabase(bench, async ({ pool }) => {
      const db = drizzle({ client: pool })
      const keys = keyNumbers(KEYS)
      const balance = new Ratelimit({ db, limiter: Ratelimit.balance(), prefix: 'balance', durable: true })
      for (const key of keys) await balance.grant(key, PLENTY)
      const calls: Call[] = [
        { name: 'limit, balance', check: async (key) => (await balance.limit(keyIn(keys, key))).success },
      ]
      for (const grants of [1, 3, 20]) {
        const limiter = Ratelimit.credits()
        const credits = new Ratelimit({ db, limiter, prefix: `credits ${grants}`, durable: true })
        for (const key of keys) {
          for (let i = 0; i < grants; i++)
            await credits.grant(key, PLENTY, { id: `${i}`, expires: `${i + 30}d` })
        }
        calls.push({
          name: `limit, ${grants} live ${grants === 1 ? 'grant' : 'grants'}`,
          check: async (key) => (await credits.limit(keyIn(keys, key))).success,
        })
      }
      return measureCalls(bench, calls, callers)
    }),
}))

/** One of the keys with grants for a key of the bench. */
function keyIn(keys: readonly string[], key: string): string {
  let sum = 0
  for (const letter of key) sum = (sum * 31 + letter.charCodeAt(0)) % keys.length
  return keys[sum] as string
}
