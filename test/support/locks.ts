import type pg from 'pg'
import { vi } from 'vitest'
import type { TestDatabase } from './databases.ts'
import { PATIENTLY } from './patience.ts'

/** A transaction that holds the rows of a prefix, or those of some keys, until its client ends it. */
export async function holdRows(
  database: Pick<TestDatabase, 'client'>,
  prefix: string,
  keys: readonly string[] | null = null,
  table = 'rate_limit_ephemeral',
): Promise<pg.Client> {
  const holder = await database.client()
  await holder.query('begin')
  const rows = `select 1 from ${table} where prefix = $1 and ($2::text[] is null or key = any($2)) for update`
  await holder.query(rows, [prefix, keys])
  return holder
}

/** The processes of the server that wait for a lock in this database now. */
export async function waitingForLocks({ rows }: Pick<TestDatabase, 'rows'>): Promise<number[]> {
  const found = await rows(
    `select pid from pg_stat_activity where datname = current_database()
      and backend_type = 'client backend' and wait_event_type = 'Lock'`,
  )
  return found.map(({ pid }) => Number(pid))
}

/** Resolves with the processes that wait, once there are this many. */
export async function untilWaiting(
  database: Pick<TestDatabase, 'rows'>,
  count = 1,
): Promise<readonly number[]> {
  return vi.waitUntil(async () => {
    const waiting = await waitingForLocks(database)
    return waiting.length >= count && waiting
  }, PATIENTLY)
}
