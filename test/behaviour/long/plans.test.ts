import { sql } from 'drizzle-orm'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { keysNamed } from '../../support/keys.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { flushStatistics } from '../../support/statistics.ts'

// Slow: the table grows by 20,000 rows and is vacuumed again, for each kind of call.

const database = useDatabase()
const limiter = Ratelimit.tokenBucket(1000, '1s', 1_000_000)

function limiterOn(db: Db, prefix: string): Ratelimit {
  return new Ratelimit({ timeout: false, db, limiter, prefix, cleanupProbability: 0, connections: 1 })
}

/** The rows of a query on the one connection of a pool. */
async function rowsOn(db: Db, query: string): Promise<Record<string, unknown>[]> {
  const result: unknown = await db.execute(sql.raw(query))
  return [...((result as { rows?: Record<string, unknown>[] }).rows ?? (result as Record<string, unknown>[]))]
}

/** Calls at once; a limiter with one connection sends them as one statement. */
function together(ratelimit: Ratelimit, keys: readonly string[], rate = 1): Promise<unknown> {
  return Promise.all(keys.map((key) => ratelimit.limit(key, { rate })))
}

describe('a prepared statement is planned once', () => {
  // Postgres itself plans the first five executions of each.
  test.each([1, 2, 3, 8, 32])('with %i keys', async (count) => {
    const { db } = database.connect(1)
    const ratelimit = limiterOn(db, `planned ${count}`)
    for (let i = 0; i < 40; i++) {
      await together(ratelimit, keysNamed('key', count))
      await together(ratelimit, keysNamed('key', count), 0)
      await together(ratelimit, keysNamed(`new ${i}`, count))
    }
    // If it reported later, the tests below would count what this one has read.
    await flushStatistics(database, [db])
    const plans = await rowsOn(
      db,
      `select custom_plans::int as custom, generic_plans::int as generic from pg_prepared_statements
        where not from_sql and statement ~ '^/[*] size'`,
    )
    expect(plans.length).toBeGreaterThanOrEqual(3)
    for (const { custom } of plans) expect(custom).toBeLessThanOrEqual(5)
    const generic = plans.reduce((sum, plan) => sum + Number(plan['generic']), 0)
    // Each round has four statements.
    expect(generic).toBeGreaterThanOrEqual(40 * 4 - plans.length * 5)
  })
})

describe('no plan outlives the size of the table that it was made for', () => {
  const PREFIX = 'grown'
  const TABLE = 'rate_limit_ephemeral'
  // One statement by an outdated plan reads as many. The calls of a test read far fewer.
  const ROWS = 20_000
  // Each stands for a process.
  const processes: { db: Db; ratelimit: Ratelimit; slots: Semaphore }[] = []
  let news = 0

  beforeAll(async () => {
    await database.script(`truncate ${TABLE}; alter table ${TABLE} set (autovacuum_enabled = false)`)
    for (let i = 0; i < 2; i++) {
      const { db } = database.connect(1)
      const common = { db, prefix: PREFIX, durable: false, timeout: false, cleanupProbability: 0 } as const
      const slots = new Semaphore({ ...common, limit: 5, lease: '30s' })
      processes.push({ db, ratelimit: limiterOn(db, PREFIX), slots })
    }
    await together(processes[0]?.ratelimit ?? expect.fail(), keysNamed('key', 20))
    await database.script(`analyze ${TABLE}`)
    await warm()
    await grow()
    await warm()
  })

  const limits = [1, 2, 3, 4, 5, 6].map((n) => Ratelimit.tokenBucket(1000 * n, `${n}s`, 1_000_000 * n))

  /** Calls of every kind, for known and new keys: each has statements of its own. */
  const kinds: Record<string, (ratelimit: Ratelimit) => Promise<unknown>> = {
    'one key': (ratelimit) => ratelimit.limit('key 1'),
    'two keys': (ratelimit) => together(ratelimit, keysNamed('key', 2)),
    'many keys': (ratelimit) => together(ratelimit, keysNamed('key', 16)),
    'a new key': (ratelimit) => ratelimit.limit(`new ${news++}`),
    'new keys': (ratelimit) => together(ratelimit, keysNamed(`new ${news++}`, 8)),
    'known and new keys': (ratelimit) =>
      together(ratelimit, [...keysNamed('key', 3), ...keysNamed(`new ${news++}`, 3)]),
    'a look': (ratelimit) => ratelimit.getRemaining('key 2'),
    looks: (ratelimit) => together(ratelimit, keysNamed('key', 5), 0),
    'a refund': (ratelimit) => ratelimit.limit('key 1', { rate: -1 }),
    'a charge into debt for a new key': (ratelimit) => ratelimit.limit(`new ${news++}`, { force: true }),
    'a list': (ratelimit) => listOf(ratelimit, ['key 1', 'key 2']),
    'a list of new keys': (ratelimit) => listOf(ratelimit, [`new ${news++}`, `new ${news++}`]),
    'lists at once': (ratelimit) => Promise.all(keysNamed('key', 4).map((key) => listOf(ratelimit, [key]))),
    'keys whose limits differ': (ratelimit) =>
      Promise.all(
        limits.map((own, i) => ratelimit.limit(i < 3 ? `key ${i}` : `new ${news++}`, { limiter: own })),
      ),
    'lists whose limits differ': (ratelimit) =>
      Promise.all(limits.map((own, i) => limitAll([{ ratelimit, key: `key ${i}`, limiter: own }]))),
    'an estimate that is settled': settle,
    'a reset': (ratelimit) => ratelimit.resetUsedTokens('key 19'),
    'a slot': (ratelimit) => takeSlot(ratelimit, 'job'),
    'a new slot': (ratelimit) => takeSlot(ratelimit, `new job ${news++}`),
  }

  function listOf(ratelimit: Ratelimit, keys: readonly string[]): Promise<unknown> {
    return limitAll(keys.map((key) => ({ ratelimit, key })))
  }

  async function settle(ratelimit: Ratelimit): Promise<void> {
    const reserved = await ratelimit.reserve('key 1', { rate: 5 })
    if (reserved.success) await reserved.commit(3)
  }

  /** Another limiter, which has the connection and the rows' prefix of this one. */
  async function takeSlot(ratelimit: Ratelimit, key: string): Promise<void> {
    const { slots } = processes.find((process) => process.ratelimit === ratelimit) ?? expect.fail()
    const job = await slots.acquire(key)
    if (job.success) await job.release()
  }

  async function check(ratelimit: Ratelimit, rounds: number): Promise<void> {
    for (let i = 0; i < rounds; i++) for (const call of Object.values(kinds)) await call(ratelimit)
  }

  /** How many rows of the table were read so far, by any means. */
  async function rowsRead(): Promise<number> {
    await flushStatistics(
      database,
      processes.map(({ db }) => db),
    )
    const [row] = await database.rows(
      `select (seq_tup_read + coalesce(idx_tup_fetch, 0))::int as read from pg_stat_user_tables where relname = '${TABLE}'`,
    )
    return Number(row?.['read'])
  }

  async function grow(rows = ROWS): Promise<void> {
    await database.script(`insert into ${TABLE} (prefix, key, tokens, last_refill, expires_at)
      select '${PREFIX}', 'other ' || n, 5, now(), now() + interval '1 hour' from generate_series(1, ${rows}) as n`)
  }

  async function shrink(): Promise<void> {
    await database.script(`delete from ${TABLE} where key not like 'key %'`)
    // Deleted rows stay while a session can see them, or is just connecting to the server.
    await vi.waitFor(async () => {
      await database.script(`vacuum (full, analyze) ${TABLE}`)
      const [row] = await database.rows(`select pg_relation_size('${TABLE}')::int as size`)
      expect(row?.['size']).toBeLessThan(10 * 8192)
    }, PATIENTLY)
  }

  /** How many rows of the table the calls of every process read. */
  async function readBy(calls: (ratelimit: Ratelimit) => Promise<unknown>): Promise<number> {
    const before = await rowsRead()
    for (const { ratelimit } of processes) await calls(ratelimit)
    return (await rowsRead()) - before
  }

  async function warm(): Promise<void> {
    for (const { ratelimit } of processes) await check(ratelimit, 8)
  }

  // The connections have seen it grow and shrink for the kinds before.
  test.each(Object.entries(kinds))('when it grows, shrinks and grows again: %s', async (_, call) => {
    await shrink()
    await warm()
    await grow()
    // The first call after it is the one that does not know yet.
    expect(await readBy(call)).toBeLessThan(ROWS)
    expect(await readBy((ratelimit) => check(ratelimit, 5))).toBeLessThan(ROWS)
  })

  test('a sweep reads the rows that have expired, and few others', async () => {
    await shrink()
    await grow()
    await database.script(`insert into ${TABLE} (prefix, key, expires_at)
      select '${PREFIX}', 'expired ' || n, now() - interval '1 hour' from generate_series(1, 250) as n`)
    const read = await readBy((ratelimit) => ratelimit.cleanup())
    // Each is found by the index, and then by its place.
    expect(read).toBeGreaterThanOrEqual(250)
    expect(read).toBeLessThan(1_000)
  })

  // The planner then expects few rows in all, and one of each prefix: the index that cleanup uses looks good.
  test('when it grows and had few rows on its pages', async () => {
    await shrink()
    await database.script(`insert into ${TABLE} (prefix, key, expires_at)
      select '${PREFIX}', 'sparse ' || n, now() from generate_series(1, 1600) as n;
      delete from ${TABLE} where key like 'sparse %' and key <> 'sparse 1600'`)
    await database.script(`vacuum (analyze) ${TABLE}`)
    await warm()
    // On fewer than 256 pages such a table is read by the other index until it is analyzed.
    await grow(3 * ROWS)
    expect(await readBy((ratelimit) => check(ratelimit, 5))).toBeLessThan(ROWS)
  })

  // The planner then expects a few rows in each prefix, so that the index for cleanup looks as good.
  test.each([300, 600, 1000])('when it has %i rows and was never analyzed', async (rows) => {
    await database.script(`truncate ${TABLE}`)
    await grow(rows)
    await warm()
    // Each call reads each of its rows twice. By the other index, it would read all rows for each of them.
    expect(await readBy((ratelimit) => check(ratelimit, 20))).toBeLessThan(10_000)
  })

  test('when it is analyzed while it is small, and when it is large', async () => {
    await shrink()
    await grow()
    await warm()
    await database.script(`analyze ${TABLE}`)
    expect(await readBy((ratelimit) => check(ratelimit, 5))).toBeLessThan(ROWS)
    await shrink()
    await warm()
    await database.script(`analyze ${TABLE}`)
    await grow()
    expect(await readBy((ratelimit) => check(ratelimit, 5))).toBeLessThan(ROWS)
  })
})
