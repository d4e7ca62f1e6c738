import { expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'

const CONNECTIONS = 24
const database = useDatabase()

test('24 connections, the same limits in opposite orders, single checks, statements for many keys, cleanup and resets: no deadlock', async () => {
  const until = performance.now() + 5000
  const counts = await Promise.all(
    Array.from({ length: CONNECTIONS }, async (_, process) => {
      const { db } = database.connect(1)
      const options = { db, cleanupProbability: 1 }
      const limits = [
        new Ratelimit({ ...options, limiter: Ratelimit.fixedWindow(1000, 20), prefix: 'a' }),
        new Ratelimit({ ...options, limiter: Ratelimit.slidingWindow(1000, 20), prefix: 'b' }),
        new Ratelimit({
          ...options,
          limiter: Ratelimit.tokenBucket(1000, 20, 1000),
          prefix: 'c',
          durable: true,
        }),
        new Ratelimit({ ...options, limiter: Ratelimit.fixedWindow(1000, 20), prefix: 'd', durable: true }),
      ]
      const forth = limits.flatMap((ratelimit) => ['x', 'y'].map((key) => ({ ratelimit, key })))
      const requests = process % 2 === 0 ? forth : forth.toReversed()
      let count = 0
      while (performance.now() < until) {
        await Ratelimit.limitAll(requests)
        await db.transaction((tx) => Ratelimit.limitAll(requests, { tx }))
        const [limit] = limits
        await Promise.all(['y', 'x', 'z'].map((key) => limit?.limit(key)))
        if (process % 6 === 0) await limit?.cleanup()
        if (process % 6 === 1) await limit?.resetUsedTokens('x')
        count++
      }
      return count
    }),
  )
  expect(Math.min(...counts)).toBeGreaterThan(0)
  const [row] = await database.rows(
    'select deadlocks::int from pg_stat_database where datname = current_database()',
  )
  // What is retried by itself is counted here all the same.
  expect(row).toEqual({ deadlocks: 0 })
})

test('24 connections on two limits: never one over either, and as much of the one as of the other', async () => {
  const answers = await Promise.all(
    Array.from({ length: CONNECTIONS }, async (_, process) => {
      const { db } = database.connect(1)
      const small = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(40, '1h'), prefix: 'small' })
      const large = new Ratelimit({
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
        allowed.push((await Ratelimit.limitAll(process % 2 === 0 ? both : both.toReversed())).success)
      }
      return { allowed, large }
    }),
  )
  expect(answers.flatMap(({ allowed }) => allowed).filter(Boolean)).toHaveLength(40)
  expect(await answers[0]?.large.getRemaining('key')).toMatchObject({ remaining: 20 })
})
