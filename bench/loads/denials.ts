import { drizzle } from 'drizzle-orm/node-postgres'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { Ratelimit } from '../../src/index.ts'
import { PERIOD_SECONDS } from '../contenders/contender.ts'
import { isAdmitted, postgresStore } from '../contenders/flexible.ts'
import { allDenied, keyNumber, measure } from '../measure.ts'
import { type Entry, interleave } from '../rounds.ts'
import type { Connections } from '../server/connections.ts'
import { type Load, withDatabase } from './load.ts'

export const BLOCKED = 'drizzle-ratelimit, inMemoryBlock'
export const MEMORY_STORE = 'rate-limiter-flexible, memory store'

type Check = () => Promise<boolean>

/** One caller checks a key again and again whose limit is used up. */
export const denials: Load = {
  name: 'denials',
  title: 'repeated denials',
  run: (bench) =>
    withDatabase(bench, async (connections) => {
      const { rounds, roundMs, warmUpMs } = bench.settings
      const entries = Object.entries(await checksOn(connections)).map(([name, check]): Entry => {
        // The shortest of these checks take no longer than reading the clock.
        const work = { check, key: () => KEY, callers: 1, timedTogether: 100 }
        return {
          name,
          turn: async () => {
            await measure({ ...work, ms: warmUpMs })
            return allDenied(await measure({ ...work, ms: roundMs }))
          },
        }
      })
      bench.progress.expect(rounds * entries.length)
      const measured = await interleave(entries, rounds, bench.progress)
      return { measured, baseline: BLOCKED, comparedBy: 'perSecond' }
    }),
}

const KEY = keyNumber(0)

/** A limit of 1, which the first call of the warm-up takes. */
async function checksOn({ pool }: Connections): Promise<Record<string, Check>> {
  const config = { db: drizzle({ client: pool }), limiter: Ratelimit.tokenBucket(1, '1h', 1) }
  const blocked = new Ratelimit({ ...config, prefix: 'blocked', inMemoryBlock: true })
  const asking = new Ratelimit({ ...config, prefix: 'asking' })

  const memory = new RateLimiterMemory({ points: 1, duration: PERIOD_SECONDS })
  const store = await postgresStore(pool, 'flexible_blocking', 1, { inMemoryBlockOnConsumed: 1 })
  return {
    [BLOCKED]: async () => (await blocked.limit(KEY)).success,
    'drizzle-ratelimit, which asks each time': async () => (await asking.limit(KEY)).success,
    [MEMORY_STORE]: () => isAdmitted(memory.consume(KEY)),
    'rate-limiter-flexible, Postgres with inMemoryBlockOnConsumed': () => isAdmitted(store.consume(KEY)),
  }
}
