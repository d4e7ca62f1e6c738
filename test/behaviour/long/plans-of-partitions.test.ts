import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit, rateLimitTables } from '../../../src/index.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { keysNamed } from '../../support/keys.ts'
import { flushStatistics } from '../../support/statistics.ts'

const database = useDatabase()
const limiter = Ratelimit.tokenBucket(1000, '1s', 1_000_000)
const ROWS = 20_000

const layouts = {
  hash: ['hash (key)', [0, 1, 2, 3].map((each) => `for values with (modulus 4, remainder ${each})`)],
  list: ['list (prefix)', ["for values in ('grown')", 'default']],
} as const

describe.each(Object.entries(layouts))('partitions by %s', (name, [by, bounds]) => {
  const table = `parts_${name}`
  const tables = rateLimitTables({ ephemeral: table })

  /** How many rows of the partitions were read so far, by any means. */
  async function rowsRead(db: Db): Promise<number> {
    await flushStatistics(database, [db])
    const [row] = await database.rows(`
      select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int as read
      from pg_stat_user_tables where relname ~ '^${table}_'`)
    return Number(row?.['read'])
  }

  test('no plan outlives the size of a partition that it was made for', async () => {
    await database.script(
      `create table ${table} (like rate_limit_ephemeral including all) partition by ${by}`,
    )
    for (const [place, bound] of bounds.entries()) {
      await database.script(`create table ${table}_${place} partition of ${table} ${bound}
        with (autovacuum_enabled = false)`)
    }
    const { db } = database.connect(1)
    const ratelimit = new Ratelimit({
      timeout: false,
      ...{ db, limiter, prefix: 'grown', tables, cleanupProbability: 0, connections: 1 },
    })
    const calls = async (rounds: number) => {
      for (let round = 0; round < rounds; round++) {
        await ratelimit.limit('key 1')
        await ratelimit.getRemaining('key 2')
        await Promise.all(keysNamed('key', 8).map((key) => ratelimit.limit(key)))
        await limitAll(['key 1', 'key 2'].map((key) => ({ ratelimit, key })))
      }
    }
    await calls(8)
    await database.script(`analyze ${table}`)
    await calls(8)
    await database.script(`insert into ${table} (prefix, key, tokens, last_refill, expires_at)
      select 'grown', 'other ' || n, 5, now(), now() + interval '1 hour' from generate_series(1, ${ROWS}) as n`)
    const before = await rowsRead(db)
    await calls(8)
    expect((await rowsRead(db)) - before).toBeLessThan(ROWS)
  })
})
