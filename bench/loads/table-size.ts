import { drizzle } from 'drizzle-orm/node-postgres'
import { takeOne } from '../contenders/bare-update.ts'
import { defaultLimiter } from '../contenders/this-package.ts'
import { anyOf, keyNumber } from '../measure.ts'
import { admitted, type Entry, interleave } from '../rounds.ts'
import type { Connections } from '../server/connections.ts'
import { type Bench, type Load, withDatabase } from './load.ts'
import { copyRow } from './rows.ts'

const PREFIX = 'rows'

/** Measures both sizes in turns. Each has a database of its own, and its keys come from all of its rows. */
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
  await copyRow(pool, rows - 1)
  await pool.query('vacuum analyze rate_limit_ephemeral')

  const checks = {
    [oursAt(rows)]: async (key: string) => (await limiter.limit(key)).success,
    // It updates the same rows and shows the database's share of the difference.
    [`bare UPDATE, ${rows.toLocaleString('en')} rows`]: (key: string) => takeOne(pool, PREFIX, key),
  }
  const work = { key: anyOf(rows), callers: 64, serverCpu: bench.serverCpu }
  return Object.entries(checks).map(([name, check]) => admitted(name, { ...work, check }, bench.settings))
}
