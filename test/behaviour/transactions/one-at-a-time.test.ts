import { expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { type Database, limitAll, Ratelimit } from '../../../src/index.ts'
import { Quota, reserveAll, settle, settleExpired, spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'

// A connection runs one query at a time. node-postgres warns of a second one, and says that it will refuse it.

const database = useDatabase()
const NAMED = { id: 'job', expires: '1h' } as const

/** The database, with the most statements that were on their way at once in one of its transactions. */
function counting(db: Database, most: { count: number }): Database {
  let count = 0
  return {
    transaction: (work, config) => db.transaction((tx) => work(counting(tx, most)), config),
    execute: async (query) => {
      most.count = Math.max(most.count, ++count)
      try {
        return await db.execute(query)
      } finally {
        count--
      }
    },
    refreshMaterializedView: undefined,
    ...('rollback' in db ? { rollback: undefined } : {}),
  }
}

test('lists, settlements and settleExpired send one statement at a time in a transaction', async () => {
  const clock = new TestClock()
  const common = { db: database.db, clock: clock.now, cleanupProbability: 0 }
  const creditsOf = (prefix: string) => new Credits({ ...common, dated: true, prefix })
  const [gifts, payments] = [creditsOf('gifts'), creditsOf('payments')]
  const month = new Quota({ ...common, limiter: Ratelimit.fixedWindow(10, '30d'), prefix: 'month' })
  const all = [
    { ratelimit: month, key: 'org' },
    { ratelimit: gifts, key: 'org' },
    { ratelimit: payments, key: 'org' },
  ] as const
  for (const credits of [gifts, payments]) await credits.grant('org', 100, { id: 'grant' })
  for (const key of ['one', 'two', 'three']) {
    await month.reserve(key, { rate: 0, ...NAMED })
    await gifts.reserve(key, { rate: 0, ...NAMED })
  }
  const most = { count: 0 }
  const work: Record<string, (tx: Database) => Promise<unknown>> = {
    limitAll: (tx) => limitAll(all, { tx }),
    reserveAll: (tx) => reserveAll(all, { tx, ...NAMED }),
    settleAll: (tx) => settle(all, 'job', { actual: [1, 2, 3], tx }),
    'settleAll again': (tx) => settle(all, 'job', { actual: [1, 2, 3], tx }),
    spend: (tx) => spend(all, { tx, rate: 50, ...NAMED, id: 'cost' }),
    settleSpent: (tx) => settle(all, 'cost', { actual: 300, tx }),
    'settleSpent again': (tx) => settle(all, 'cost', { actual: 300, tx }),
    'settleExpired of a limit': (tx) => settleExpired(month, { tx, as: 'release' }),
    'settleExpired of credits': (tx) => settleExpired(gifts, { tx, as: 'release' }),
  }
  const counts: Record<string, number> = {}
  clock.advance(3_600_000)
  for (const [name, call] of Object.entries(work)) {
    most.count = 0
    await counting(database.db, most).transaction((tx) => call(tx))
    counts[name] = most.count
  }
  expect(counts).toEqual(Object.fromEntries(Object.keys(work).map((name) => [name, 1])))
})
