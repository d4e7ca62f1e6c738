import { setTimeout as sleep } from 'node:timers/promises'
import { drizzle } from 'drizzle-orm/node-postgres'
import type pg from 'pg'
import { Ratelimit } from '../../src/index.ts'
import { keyNumbers, type Round, Stopwatch } from '../measure.ts'
import { summary } from '../rounds.ts'
import { type Load, withDatabase } from './load.ts'

const KEYS = 8
export const HOT_SHARE = 'HOT updates, %'
export const TABLE_KB = 'table, kB'
export const INDEXES_KB = 'indexes, kB'

/** One caller for each key, because two calls for one key would share an update. */
export const hotUpdates: Load = {
  name: 'hot-updates',
  title: `updates of ${KEYS} hot keys`,
  run: (bench) =>
    withDatabase(bench, async ({ pool }) => {
      const { hotUpdates } = bench.settings
      bench.progress.expect(1)
      bench.progress.turn(`${hotUpdates.toLocaleString('en')} updates`)
      // Each check makes the bucket full a little later. Without a grid each update would change an index.
      const limiter = new Ratelimit({
        db: drizzle({ client: pool }),
        limiter: Ratelimit.tokenBucket(1_000, '1s', 1_000_000, { refill: 'continuous' }),
        prefix: 'hot',
      })
      const round = await checkEach(limiter, hotUpdates / KEYS)
      const { updates, hot, table, indexes } = await statistics(pool, hotUpdates - KEYS)
      return {
        measured: [summary('drizzle-ratelimit, 8 callers', [round])],
        facts: {
          updates,
          [HOT_SHARE]: (hot / updates) * 100,
          [TABLE_KB]: table / 1024,
          [INDEXES_KB]: indexes / 1024,
        },
      }
    }),
}

async function checkEach(limiter: Ratelimit, times: number): Promise<Round> {
  const stopwatch = new Stopwatch()
  const started = performance.now()
  const caller = async (key: string) => {
    for (let i = 0; i < times; i++) {
      const begun = performance.now()
      const { success } = await limiter.limit(key)
      stopwatch.add(performance.now() - begun)
      if (!success) throw new Error('A check was denied.')
    }
  }
  await Promise.all(keyNumbers(KEYS).map(caller))
  const checks = times * KEYS
  const perSecond = (checks * 1000) / (performance.now() - started)
  return { checks, admitted: checks, perSecond, ...stopwatch.percentiles() }
}

/** Each connection reports its work when it is idle, which may take ten seconds. */
async function statistics(pool: pg.Pool, atLeast: number) {
  for (let tries = 0; tries < 100; tries++) {
    const { rows } = await pool.query<Record<'updates' | 'hot' | 'table' | 'indexes', number>>(
      `select n_tup_upd::float8 as updates, n_tup_hot_upd::float8 as hot,
         pg_relation_size(relid)::float8 as table, pg_indexes_size(relid)::float8 as indexes
       from pg_stat_user_tables where relname = 'rate_limit_ephemeral'`,
    )
    if (rows[0] && rows[0].updates >= atLeast) return rows[0]
    await sleep(200)
  }
  throw new Error('There were fewer updates than checks.')
}
