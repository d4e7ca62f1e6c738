import { drizzle } from 'drizzle-orm/node-postgres'
import { takeOne } from '../contenders/bare-update.ts'
import { defaultLimiter } from '../contenders/this-package.ts'
import { allAdmitted, anyOf, keyNumber, measure } from '../measure.ts'
import { type Entry, interleave } from '../rounds.ts'
import type { Connections } from '../server/connections.ts'
import { type Bench, type Load, withDatabase } from './load.ts'

const PREFIX = 'rows'

/** Both sizes at once, each in a database of its own, with keys drawn from all of its rows. */
export const tableSize: Load = {
  name: 'rows',
  title: 'rows in the table, 64 callers',
  run: (bench) =>
    withDatabase(bench, (small) =>
      withDatabase(bench, async (large) => {
        const { fewRows, manyRows, rounds } = bench.settings
        bench.progress.expect(rounds * 4)
        const few = await entriesOn(small, fewRows, bench)
        const many = await entriesOn(large, manyRows, bench)
        const measured = await interleave([...few, ...many], rounds, bench.progress)
        return { measured, baseline: oursAt(manyRows), comparedBy: 'perSecond' }
      }),
    ),
}

export function oursAt(rows: number): string {
  return `drizzle-ratelimit, ${rows.toLocaleString('en')} rows`
}

async function entriesOn({ pool }: Connections, rows: number, bench: Bench): Promise<Entry[]> {
  bench.progress.prepare(`${rows.toLocaleString('en')} rows`)
  const limiter = defaultLimiter(drizzle({ client: pool }), PREFIX)
  await limiter.limit(keyNumber(0))
  // The others are copies of the row that the limiter has written itself.
  await pool.query(
    `insert into rate_limit_ephemeral (prefix, key, tokens, last_refill, expires_at)
       select prefix, 'user:' || number, tokens, last_refill, expires_at
       from rate_limit_ephemeral, generate_series(1, $1::int - 1) as number`,
    [rows],
  )
  await pool.query('vacuum analyze rate_limit_ephemeral')

  const checks = {
    [oursAt(rows)]: async (key: string) => (await limiter.limit(key)).success,
    // It updates the same rows, and shows what is the database's share of the difference.
    [`bare UPDATE, ${rows.toLocaleString('en')} rows`]: (key: string) => takeOne(pool, PREFIX, key),
  }
  const { roundMs, warmUpMs } = bench.settings
  return Object.entries(checks).map(([name, check]) => {
    const work = { check, key: anyOf(rows), callers: 64 }
    return {
      name,
      turn: async () => {
        await measure({ ...work, ms: warmUpMs })
        return allAdmitted(await measure({ ...work, ms: roundMs }))
      },
    }
  })
}
