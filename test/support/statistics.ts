import { sql } from 'drizzle-orm'
import type { Db, TestDatabase } from './databases.ts'

/** Makes each pool's one connection, and the one past Drizzle, report what it has counted so far. */
export async function flushStatistics(
  { rows }: Pick<TestDatabase, 'rows'>,
  pools: readonly Db[],
): Promise<void> {
  const [version] = await rows(`select current_setting('server_version_num')::int as number`)
  // Before Postgres 15 a connection reports once a second.
  const flush = Number(version?.['number']) >= 150_000 ? 'pg_stat_force_next_flush()' : 'pg_sleep(1.1)'
  await Promise.all(
    pools.map(async (db) => {
      await db.execute(sql.raw(`select ${flush}`))
      await db.execute(sql`select 1`)
    }),
  )
  await rows(`select ${flush}`)
  await rows('select pg_stat_clear_snapshot()')
}

/** How many deadlocks the database had. It includes those after which a check was tried again. */
export async function deadlocks(database: Pick<TestDatabase, 'rows'>, pools: readonly Db[]): Promise<number> {
  await flushStatistics(database, pools)
  const [row] = await database.rows(
    'select deadlocks::int from pg_stat_database where datname = current_database()',
  )
  return Number(row?.['deadlocks'])
}
