import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { type Database, Ratelimit } from '../../src/index.ts'
import { takeOne } from '../contenders/bare-update.ts'
import { PLENTY } from '../contenders/contender.ts'
import { allAdmitted, anyOf, keyNumbers, type Round, Stopwatch } from '../measure.ts'
import { type Entry, interleave } from '../rounds.ts'
import { type Load, withDatabase } from './load.ts'

const KEYS = 1_000
export const UNPREPARED = 'drizzle-ratelimit, unprepared'
export const PREPARED = 'drizzle-ratelimit, prepared'
export const BARE_INSIDE = 'bare UPDATE by primary key, prepared'

type CheckInside = (key: string, tx: Database) => Promise<boolean>

/**
 * What a check adds to a caller's transaction: only the call is timed, not the transaction around it.
 *
 * Everyone updates the same rows over the same connection, which is one so that the bare UPDATE can be sent past Drizzle.
 */
export const inTransaction: Load = {
  name: 'transaction',
  title: "inside a caller's transaction",
  run: (bench) =>
    withDatabase(bench, async (_connections, url) => {
      const { rounds, roundMs, warmUpMs } = bench.settings
      const client = new pg.Client({ connectionString: url })
      // A connection that breaks while idle; its next query says so.
      client.on('error', () => {})
      await client.connect()
      const db = drizzle({ client })

      const unprepared = limiterOn(db, false)
      const prepared = limiterOn(db, true)
      for (const key of keyNumbers(KEYS)) await unprepared.limit(key)
      const checks: Record<string, CheckInside> = {
        [UNPREPARED]: async (key, tx) => (await unprepared.limit(key, { tx })).success,
        [PREPARED]: async (key, tx) => (await prepared.limit(key, { tx })).success,
        [BARE_INSIDE]: (key) => takeOne(client, PREFIX, key),
      }
      const entries = Object.entries(checks).map(([name, check]): Entry => {
        const inside = (ms: number) => measureInside((work) => db.transaction(work), check, ms)
        return {
          name,
          turn: async () => {
            await inside(warmUpMs)
            return allAdmitted(await inside(roundMs))
          },
        }
      })
      bench.progress.expect(rounds * entries.length)
      const measured = await interleave(entries, rounds, bench.progress)
      await client.end()
      return { measured, baseline: BARE_INSIDE, comparedBy: 'p50Ms' }
    }),
}

const PREFIX = 'inside'

function limiterOn(db: Database, preparedStatements: boolean): Ratelimit {
  const limiter = Ratelimit.tokenBucket(PLENTY, '1h', PLENTY)
  return new Ratelimit({ db, limiter, prefix: PREFIX, preparedStatements })
}

async function measureInside(
  transaction: (work: (tx: Database) => Promise<void>) => Promise<void>,
  check: CheckInside,
  ms: number,
): Promise<Round> {
  const stopwatch = new Stopwatch()
  const key = anyOf(KEYS)
  let checks = 0
  let admitted = 0
  const started = performance.now()
  while (performance.now() - started < ms) {
    await transaction(async (tx) => {
      const begun = performance.now()
      if (await check(key(), tx)) admitted++
      stopwatch.add(performance.now() - begun)
      checks++
    })
  }
  const perSecond = (checks * 1000) / (performance.now() - started)
  return { checks, admitted, perSecond, ...stopwatch.percentiles() }
}
