import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import type { Ratelimit } from '../../src/index.ts'
import { makeKeys } from '../contenders/contender.ts'
import { defaultLimiter } from '../contenders/this-package.ts'
import { allAdmitted, anyOf, keyNumbers, measure, type Round } from '../measure.ts'
import { interleave } from '../rounds.ts'
import { holdThree } from './holding.ts'
import { type Load, withDatabase } from './load.ts'

const KEYS = 1_000
const KNOWN_KEYS = { locked: 'locked', charged: 'charged' }
export const FREE = 'without held rows'
export const BESIDE_HELD = 'next to three held rows'

/** How callers of other keys are affected by held rows and by the calls that wait for them. */
export const held: Load = {
  name: 'held',
  title: '32 callers next to held rows',
  run: (bench) =>
    withDatabase(bench, async ({ pool }, url) => {
      const { rounds, roundMs, warmUpMs } = bench.settings
      const limiter = defaultLimiter(drizzle({ client: pool }), 'held')
      const check = checkOf(limiter)
      await makeKeys({ check }, [...keyNumbers(KEYS), ...Object.values(KNOWN_KEYS)])
      const holders = new pg.Pool({ connectionString: url, max: 3 })
      // A connection broke while idle. Its next query reports that.
      holders.on('error', () => {})

      const run = (ms: number) => measure({ check, key: anyOf(KEYS), callers: 32, ms })
      const others = drizzle({ client: holders })
      const runs = { [FREE]: run, [BESIDE_HELD]: (ms: number) => besideHeld(others, limiter, run, ms) }
      const entries = Object.entries(runs).map(([name, measured]) => ({
        name,
        turn: async () => {
          await run(warmUpMs)
          return allAdmitted(await measured(roundMs))
        },
      }))
      bench.progress.expect(rounds * entries.length)
      const measured = await interleave(entries, rounds, bench.progress)
      await holders.end()
      return { measured, baseline: FREE, comparedBy: 'p99Ms' }
    }),
}

function checkOf(limiter: Ratelimit): (key: string) => Promise<boolean> {
  return async (key) => (await limiter.limit(key)).success
}

/** The transactions end with the round, so a contender that stalls gets its answers then. */
async function besideHeld(
  holders: NodePgDatabase,
  limiter: Ratelimit,
  run: (ms: number) => Promise<Round>,
  ms: number,
): Promise<Round> {
  const keys = { ...KNOWN_KEYS, made: randomUUID() }
  const release = await holdThree(holders, limiter, keys)
  const check = checkOf(limiter)
  let answered = 0
  const ask = async (key: string) => {
    if (!(await check(key))) throw new Error('A check of a held row was denied.')
    answered++
  }
  const released = async () => {
    await sleep(ms)
    const early = answered
    await release()
    if (early > 0) throw new Error('A check of a held row did not wait.')
  }
  // The second call for each key comes when the first is already under way.
  const waiting = Object.values(keys).flatMap((key) => [ask(key), sleep(20).then(() => ask(key))])
  try {
    const [round] = await Promise.all([run(ms), released(), ...waiting])
    return round
  } finally {
    await release()
  }
}
