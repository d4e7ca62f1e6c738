import { describe, expect, test } from 'vitest'
import { rateLimitTables } from '../../../schema/index.ts'
import { Ratelimit } from '../../../src/index.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { isTake, watch } from '../../support/watch.ts'

const database = useDatabase()
const options = { limiter: Ratelimit.tokenBucket(5, '10s', 10_000), cleanupProbability: 0 }

/** A first check, and then calls of every kind. */
const RATES = [1, 1, 5, 20_000, -1, 0]

describe('a check is one statement, and the first check of a key two', () => {
  test('alone', async () => {
    const { db, statements } = watch(database.db)
    const ratelimit = new Ratelimit({ ...options, db, prefix: 'alone' })
    for (const rate of RATES) await ratelimit.limit('key', { rate })
    expect(statements).toHaveLength(2 + 5)
  })

  test('in a transaction', async () => {
    const ratelimit = new Ratelimit({ ...options, db: database.db, prefix: 'joined' })
    await database.db.transaction(async (tx) => {
      const { db, statements } = watch(tx)
      for (const rate of RATES) await ratelimit.limit('key', { rate, tx: db })
      expect(statements).toHaveLength(2 + 5)
    })
  })
})

describe('a reset is one statement', () => {
  const limits = {
    'of a limit that starts full': options.limiter,
    'of one that does not': Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 3 }),
  }
  test.each(Object.entries(limits))('%s', async (prefix, limiter) => {
    const { db, statements } = watch(database.db)
    const ratelimit = new Ratelimit({ ...options, limiter, db, prefix })
    await ratelimit.resetUsedTokens('new')
    await ratelimit.resetUsedTokens('new')
    expect(statements).toHaveLength(2)
    await database.db.transaction(async (tx) => {
      const joined = watch(tx)
      await ratelimit.resetUsedTokens('new', { tx: joined.db })
      expect(joined.statements).toHaveLength(1)
    })
  })
})

test.each([
  ['alone', 'joined'],
  ['joined', 'alone'],
])(
  'a call alone skips a row that is held, and one in a transaction waits for it: %s before %s',
  async (...ways) => {
    // Statements are kept for each table, so that only new ones are written for this test.
    const name = `skips_${ways.join('_')}`
    const tables = rateLimitTables({ ephemeral: name, durable: `${name}_durable` })
    const ratelimit = new Ratelimit({ ...options, db: database.db, prefix: 'p', tables, autoMigrate: true })
    await ratelimit.cleanup()
    await database.rows(`insert into ${name} (prefix, key, expires_at) values ('p', 'key', now())`)
    for (const way of [...ways, ...ways]) {
      const skips: boolean[] = []
      const look = (text: string) => isTake(text) && skips.push(text.includes('skip locked'))
      if (way === 'alone') {
        const { db } = watch(database.db, look)
        await new Ratelimit({ ...options, db, prefix: 'p', tables }).limit('key')
      } else {
        await database.db.transaction((tx) => ratelimit.limit('key', { tx: watch(tx, look).db }))
      }
      expect(skips).toEqual([way === 'alone'])
    }
  },
)

test.each([
  ['alone', 'joined'],
  ['joined', 'alone'],
])(
  'a call alone gives up on a row that is just made, and one in a transaction waits for it: %s before %s',
  async (...ways) => {
    const name = `makes_${ways.join('_')}`
    const tables = rateLimitTables({ ephemeral: name, durable: `${name}_durable` })
    const ratelimit = new Ratelimit({ ...options, db: database.db, prefix: 'p', tables, autoMigrate: true })
    await ratelimit.cleanup()
    for (const [i, way] of [...ways, ...ways].entries()) {
      const givesUp: boolean[] = []
      const look = (text: string) =>
        text.includes('insert into') && givesUp.push(text.includes('lock_timeout'))
      if (way === 'alone') {
        const { db } = watch(database.db, look)
        await new Ratelimit({ ...options, db, prefix: 'p', tables }).limit(`key ${i}`)
      } else {
        await database.db.transaction((tx) => ratelimit.limit(`key ${i}`, { tx: watch(tx, look).db }))
      }
      expect(givesUp).toEqual([way === 'alone'])
    }
  },
)

test.each([
  ['one key', 1],
  ['a hundred keys', 100],
  ['a key each', 1000],
])('1,000 checks that arrive together are few statements: %s', async (name, keys) => {
  const { db, statements } = watch(database.db)
  const ratelimit = new Ratelimit({ ...options, db, prefix: name, connections: 4 })
  for (let wave = 0; wave < 2; wave++) {
    const answers = Array.from({ length: 1000 }, (_, i) => ratelimit.limit(`key ${i % keys}`))
    for (const { success } of await Promise.all(answers)) expect(success).toBe(true)
  }
  // By four places, in two waves. The first finds no rows and makes them.
  expect(statements.filter(isTake).length).toBeLessThanOrEqual(4 * 2)
  // Where a statement that makes rows meets a lock, it is sent again in halves: often on a busy machine.
  expect(statements.length).toBeLessThanOrEqual(hasServer() ? 200 : 4 * 3)
})

test('checks that arrive while others are under way take at most half as many statements', async () => {
  const { db, statements } = watch(database.db)
  const ratelimit = new Ratelimit({ ...options, db, prefix: 'trickle' })
  const answers: Promise<unknown>[] = []
  for (let i = 0; i < 200; i++) {
    answers.push(ratelimit.limit(`key ${i}`))
    // The next turn of the event loop, in which nothing has been answered yet.
    if (i % 4 === 0) await new Promise(setImmediate)
  }
  await Promise.all(answers)
  // Each is for a new key, and would take two by itself.
  expect(statements.length).toBeLessThanOrEqual(200)
})

test.runIf(hasServer())(
  '1,000 checks at once use at most the given connections, and one to sweep',
  async () => {
    const connections = async () => {
      const [row] = await database.rows(
        `select count(*)::int as n from pg_stat_activity
          where datname = current_database() and backend_type = 'client backend'`,
      )
      return Number(row?.['n'])
    }
    const before = await connections()
    const ratelimit = new Ratelimit({
      ...options,
      db: database.connect(20).db,
      prefix: 'connections',
      connections: 2,
      cleanupProbability: 1,
    })
    for (let wave = 0; wave < 3; wave++) {
      await Promise.all(Array.from({ length: 1000 }, (_, i) => ratelimit.limit(`key ${i % 700}`)))
    }
    const used = (await connections()) - before
    expect(used).toBeGreaterThanOrEqual(2)
    expect(used).toBeLessThanOrEqual(2 + 1)
  },
)

test('while 10,000 calls wait, another is refused, and the others succeed', async () => {
  const ratelimit = new Ratelimit({ ...options, db: database.db, prefix: 'too many' })
  const answers = Array.from({ length: 10_002 }, (_, i) => ratelimit.limit(`key ${i % 20}`, { rate: 0.5 }))
  const [last, oneMore] = answers.slice(-2)
  for (const refused of [last, oneMore]) await expect(refused).rejects.toMatchObject({ code: 'OVERLOADED' })
  for (const { success } of await Promise.all(answers.slice(0, -2))) expect(success).toBe(true)
  expect(await ratelimit.limit('key 0')).toMatchObject({ success: true, remaining: 9749 })
})
