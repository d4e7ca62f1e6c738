import { sql } from 'drizzle-orm'
import { expect, test } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { CLOCK_PATH, databaseClock } from '../../support/database-clock.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'

const database = useDatabase()
const NOW_MS = Date.UTC(2026, 0, 31, 10, 15, 0, 7)
const HOUR_MS = 3_600_000

test.each(['one key', 'a batch'])(
  'the time of the database is rounded down to milliseconds, %s',
  async (way) => {
    const setTime = await databaseClock(database)
    const db = hasServer() ? database.connect(1).db : database.db
    await db.execute(sql.raw(`set search_path = ${CLOCK_PATH}`))
    const ratelimit = new Ratelimit({
      ...{ db, limiter: Ratelimit.fixedWindow(9, '1h'), prefix: way, cleanupProbability: 0 },
    })
    const keysOf = (us: number) => (way === 'one key' ? [`key ${us}`] : [`key ${us}`, `other ${us}`])
    const end = NOW_MS + HOUR_MS
    for (const us of [0, 1, 500, 999]) {
      const all = <T>(call: (key: string) => Promise<T>) => Promise.all(keysOf(us).map(call))
      await setTime(NOW_MS, us)
      for (const answer of await all((key) => ratelimit.limit(key)))
        expect(answer).toMatchObject({ reset: end })
      await setTime(end - 1, 999)
      for (const answer of await all((key) => ratelimit.limit(key, { rate: 9 }))) {
        expect(answer).toMatchObject({ success: false, reset: end, retryAfter: 1 })
      }
      for (const look of await all((key) => ratelimit.getRemaining(key)))
        expect(look).toMatchObject({ used: 1 })
      await setTime(end, 0)
      for (const look of await all((key) => ratelimit.getRemaining(key)))
        expect(look).toMatchObject({ used: 0 })
      for (const answer of await all((key) => ratelimit.limit(key, { rate: 9 }))) {
        expect(answer).toMatchObject({ success: true, reset: end + HOUR_MS })
      }
    }
    await db.execute(sql.raw('reset search_path'))
  },
)

// In seconds a double cannot hold these: read back, they are a little short of a whole millisecond.
test.each([1_048_579_822, 4_334_372_801_683])('a stored time is read as it was written: %s', async (ms) => {
  const clock = new TestClock(ms)
  const options = { db: database.db, cleanupProbability: 0, clock: clock.now }
  const ratelimit = new Ratelimit({ ...options, limiter: Ratelimit.fixedWindow(1, '1h'), prefix: 'inexact' })
  const key = `key ${ms}`
  await ratelimit.limit(key)
  expect(await ratelimit.getRemaining(key)).toMatchObject({ start: ms, reset: ms + HOUR_MS })
  clock.advance(HOUR_MS - 1)
  expect(await ratelimit.limit(key)).toMatchObject({ success: false, retryAfter: 1 })
})
