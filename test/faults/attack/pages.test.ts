import { sql } from 'drizzle-orm'
import { usage } from 'drizzle-ratelimit/reports'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import type { Database, Limiter } from '../../../src/index.ts'
import { closePeriods } from '../../../src/quota/index.ts'
import { emptyDatabase, migrate, type TestDatabase } from '../../support/databases.ts'
import { tell } from '../../support/happened.ts'

// One prefix with many customers: each row is read once, and a page of them is held at a time. No table has
// statistics. That is how the planner meets a table that autovacuum has not reached.

const month = calendarWindow(1_000_000, 'month')
const year = calendarWindow(1_000_000, 'year')
const FEW = 5_000
const MANY = 20_000
/** The longest page. */
const PAGE = 1_000

let database: TestDatabase
beforeAll(async () => {
  database = await emptyDatabase()
  await migrate(database)
  await database.script('alter table rate_limit_durable set (autovacuum_enabled = false)')
})
beforeEach(() => database.script('truncate rate_limit_durable'))
afterAll(() => database.close())

/** Customers who began in January: as many of each prefix as it is called. */
async function fill(customers: number): Promise<string> {
  const prefix = `${customers}`
  await database.script(`insert into rate_limit_durable
    (prefix, key, count, prev_count, window_start, tokens, expires_at)
    select '${prefix}', 'org:' || i, i, 0, '2026-01-01T00:00:00Z', i, '2026-02-01T00:00:00Z'
    from generate_series(1, ${customers}) i`)
  return prefix
}

interface Cost {
  /** Rows of the table that were read to find what was asked for. */
  read: number
  /** The longest answer of a statement. */
  longest: number
}

/** How many rows this connection has read. Postgres adds them up over transactions, and forgets them later. */
async function readBy(tx: Database): Promise<number> {
  const counters = sql`select sum(seq_tup_read + idx_tup_fetch) as read from pg_stat_xact_user_tables`
  return Number(Object(await tx.execute(counters)).rows[0].read)
}

/** Does the work in a transaction, and adds to the cost what it read. */
function counted<T>(cost: Cost, work: (tx: Database) => Promise<T>): Promise<T> {
  return database.db.transaction(async (tx) => {
    const watched: Database = {
      ...{ transaction: tx.transaction, refreshMaterializedView: undefined, rollback: undefined },
      execute: async (query) => {
        const answer = await tx.execute(query)
        cost.longest = Math.max(cost.longest, Object(answer).rows.length)
        return answer
      },
    }
    const before = await readBy(tx)
    const result = await work(watched)
    cost.read += (await readBy(tx)) - before
    return result
  })
}

/** Closes the ended periods, at most this many at a time. Returns how many they were. */
async function closeAll(
  cost: Cost,
  prefix: string,
  limiterOf: (key: string) => Limiter,
  limit: number = PAGE,
): Promise<number> {
  const clock = () => new Date('2026-02-01T00:00:00Z')
  const rows = { prefix, limiterOf, clock, durable: true }
  let all = 0
  let after: string | undefined
  do {
    const closed = await counted(cost, (tx) => closePeriods({ ...rows, db: tx }, { tx, after, limit }))
    all += closed.length
    after = closed.at(-1)?.key
  } while (after !== undefined)
  return all
}

const isYearly = (key: string) => Number(key.slice('org:'.length)) % 3 !== 0
const noon = () => new Date('2026-01-15T12:00:00Z')

interface Work {
  readonly what: string
  /** How often a row may be read: once to find it, and once more to look at it or to lock it. */
  readonly times: number
  run(cost: Cost, prefix: string): Promise<number>
  /** How many are found among this many rows. */
  found(rows: number): number
}

const works: Work[] = [
  {
    what: 'usage by plan',
    times: 2,
    run: (cost, prefix) =>
      counted(cost, async (tx) => {
        const limiterOf = (key: string) => (isYearly(key) ? year : month)
        const [most] = await usage({ db: tx, prefix, limiterOf, clock: noon, durable: true })
        return most?.used ?? 0
      }),
    found: (rows) => rows,
  },
  {
    what: 'usage under one limit',
    times: 1,
    run: (cost, prefix) =>
      counted(
        cost,
        async (tx) =>
          (await usage({ db: tx, prefix, limiter: month, clock: noon, durable: true }))[0]?.used ?? 0,
      ),
    found: (rows) => rows,
  },
  {
    what: 'closePeriods if nothing has ended',
    times: 1,
    run: (cost, prefix) =>
      counted(cost, async (tx) => {
        const rows = { db: tx, prefix, limiterOf: () => month, clock: noon, durable: true }
        return (await closePeriods(rows, { tx })).length
      }),
    found: () => 0,
  },
  {
    what: 'closing all',
    times: 2,
    run: (cost, prefix) => closeAll(cost, prefix, () => month),
    found: (rows) => rows,
  },
  {
    what: 'closing all, twenty at a time',
    times: 2,
    run: (cost, prefix) => closeAll(cost, prefix, () => month, 20),
    found: (rows) => rows,
  },
  {
    what: 'closing those of a third, among others whose year goes on',
    times: 2,
    run: (cost, prefix) => closeAll(cost, prefix, (key) => (isYearly(key) ? year : month)),
    found: (rows) => Math.floor(rows / 3),
  },
]

test.each(works)('$what reads each row once', async ({ what, times, run, found }) => {
  const costs = []
  for (const rows of [FEW, MANY]) {
    const prefix = await fill(rows)
    const cost: Cost = { read: 0, longest: 0 }
    expect(await run(cost, prefix)).toBe(found(rows))
    expect(cost.longest).toBeLessThanOrEqual(PAGE)
    expect(cost.read).toBeLessThanOrEqual(times * rows)
    costs.push(cost.read / rows)
    await database.script('truncate rate_limit_durable')
  }
  const [few = 0, many = 0] = costs
  tell(`rows read of ${MANY}`, what, Math.round(MANY * many))
  expect(many).toBeLessThan(1.2 * few)
})
