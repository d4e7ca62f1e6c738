import { expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { holdRows, untilWaiting } from '../support/locks.ts'
import { times } from '../support/runs.ts'
import { deadlocks } from '../support/statistics.ts'

// Slow: a deadlock needs many rounds of many connections to show.

const CONNECTIONS = 24
const ROUNDS = times(3)
const database = useDatabase()

test('24 connections, the same limits in opposite orders, single checks, statements for many keys, cleanup and resets: no deadlock', async () => {
  const pools = Array.from({ length: CONNECTIONS }, () => database.connect(1).db)
  await Promise.all(
    pools.map(async (db, process) => {
      const options = { db, cleanupProbability: 1 }
      const bucket = Ratelimit.tokenBucket(1000, 20, 1000)
      const limits = [
        new Ratelimit({ timeout: false, ...options, limiter: Ratelimit.fixedWindow(1000, 20), prefix: 'a' }),
        new Ratelimit({
          timeout: false,
          ...options,
          limiter: Ratelimit.slidingWindow(1000, 20),
          prefix: 'b',
        }),
        new Ratelimit({ timeout: false, ...options, limiter: bucket, prefix: 'c', durable: true }),
        new Ratelimit({
          timeout: false,
          ...options,
          limiter: Ratelimit.fixedWindow(1000, 20),
          prefix: 'd',
          durable: true,
        }),
      ]
      const forth = limits.flatMap((ratelimit) => ['x', 'y'].map((key) => ({ ratelimit, key })))
      const requests = process % 2 === 0 ? forth : forth.toReversed()
      for (let round = 0; round < ROUNDS; round++) {
        await limitAll(requests)
        await db.transaction((tx) => limitAll(requests, { tx }))
        const [limit] = limits
        await Promise.all(['y', 'x', 'z'].map((key) => limit?.limit(key)))
        if (process % 6 === 0) await limit?.cleanup()
        if (process % 6 === 1) await limit?.resetUsedTokens('x')
      }
    }),
  )
  // Also those after which a call was tried again by itself.
  expect(await deadlocks(database, pools)).toBe(0)
})

test('24 connections on two limits stay within both, and use as much of the one as of the other', async () => {
  const answers = await Promise.all(
    Array.from({ length: CONNECTIONS }, async (_, process) => {
      const { db } = database.connect(1)
      const small = new Ratelimit({
        timeout: false,
        db,
        limiter: Ratelimit.fixedWindow(40, '1h'),
        prefix: 'small',
      })
      const large = new Ratelimit({
        timeout: false,
        db,
        limiter: Ratelimit.tokenBucket(1, '1h', 60),
        prefix: 'large',
        durable: true,
      })
      const both = [
        { ratelimit: small, key: 'key' },
        { ratelimit: large, key: 'key' },
      ]
      const allowed: boolean[] = []
      for (let i = 0; i < 5; i++) {
        allowed.push((await limitAll(process % 2 === 0 ? both : both.toReversed())).success)
      }
      return { allowed, large }
    }),
  )
  expect(answers.flatMap(({ allowed }) => allowed).filter(Boolean)).toHaveLength(40)
  expect(await answers[0]?.large.getRemaining('key')).toMatchObject({ remaining: 20 })
})

test('a statement with a known and a new key, together with limitAll on both: no deadlock', async () => {
  const options = { limiter: Ratelimit.fixedWindow(10, '1h'), prefix: 'mixed', cleanupProbability: 0 }
  const pools = [database.connect(2).db, database.connect(1).db] as const
  const single = new Ratelimit({ timeout: false, db: pools[0], ...options })
  const together = new Ratelimit({ timeout: false, db: pools[1], ...options })
  await single.limit('b')
  const holder = await holdRows(database, 'mixed')
  const coalesced = Promise.all([single.limit('a'), single.limit('b')])
  await untilWaiting(database, 1)
  const both = limitAll(['a', 'b'].map((key) => ({ ratelimit: together, key })))
  await untilWaiting(database, 2)
  await holder.query('rollback')
  expect((await coalesced).every(({ success }) => success)).toBe(true)
  expect(await both).toMatchObject({ success: true })
  expect(await single.getRemaining('a')).toMatchObject({ remaining: 8 })
  expect(await single.getRemaining('b')).toMatchObject({ remaining: 7 })
  expect(await deadlocks(database, pools)).toBe(0)
})

test('a held key does not delay the others', async () => {
  const { db } = database.connect(4)
  const limit = new Ratelimit({
    timeout: false,
    db,
    limiter: Ratelimit.fixedWindow(10, '1h'),
    prefix: 'held',
    cleanupProbability: 0,
  })
  await limit.limit('held')
  const holder = await holdRows(database, 'held')
  const held = [limit.limit('held')]
  await new Promise(setImmediate)
  held.push(limit.limit('held'))
  await new Promise(setImmediate)
  expect(await limit.limit('free')).toMatchObject({ success: true })
  await holder.query('rollback')
  expect(await Promise.all(held)).toMatchObject([{ remaining: 8 }, { remaining: 7 }])
})

test('24 connections whose lists take what is left of one limit take all of it, and no more', async () => {
  const lists = await Promise.all(
    Array.from({ length: CONNECTIONS }, async () => {
      const { db } = database.connect(1)
      const common = { db, timeout: false } as const
      const few = new Ratelimit({ ...common, limiter: Ratelimit.fixedWindow(100, '1h'), prefix: 'few' })
      const many = new Ratelimit({ ...common, limiter: Ratelimit.fixedWindow(1000, '1h'), prefix: 'many' })
      const take = () =>
        limitAll([
          { ratelimit: few, key: 'all', rate: 7, atLeast: 2 },
          { ratelimit: many, key: 'all' },
        ])
      const results = await Promise.all([take(), take(), take()])
      return { few, many, results }
    }),
  )
  const granted = lists.flatMap(({ results }) =>
    results.flatMap(({ success, results: [first] }) =>
      success && first?.success ? (first.granted ?? 0) : [],
    ),
  )
  const [{ few, many }] = lists as [(typeof lists)[number]]
  expect(granted.reduce((sum, each) => sum + each, 0)).toBe(100)
  expect(await few.getRemaining('all')).toMatchObject({ used: 100 })
  expect(await many.getRemaining('all')).toMatchObject({ used: granted.length })
})
