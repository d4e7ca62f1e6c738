import { afterEach, describe, expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { hasPgBouncer, PgBouncer } from '../support/pgbouncer.ts'
import {
  count,
  expectQuiet,
  limiter,
  newPrefix,
  type Outcome,
  openPool,
  outcomeOf,
  SECRET,
  usePools,
} from './kit.ts'

const database = useDatabase()
const direct = usePools(database)
const bouncers: PgBouncer[] = []
afterEach(async () => {
  for (const bouncer of bouncers.splice(0)) await bouncer.stop()
})

async function through(...settings: string[]): Promise<string> {
  const bouncer = await PgBouncer.start(direct.url, settings)
  bouncers.push(bouncer)
  return bouncer.through(direct.url)
}

describe.skipIf(!hasPgBouncer)(
  'PgBouncer in transaction mode (skipped where pgbouncer is not installed)',
  () => {
    test.each([
      ['prepared statements as by default', undefined],
      ['no prepared statements', false],
    ])('%s: exactly the limit, for single calls, bursts and limitAll', async (name, preparedStatements) => {
      const bounced = await through('default_pool_size = 3')
      const prefix = newPrefix(name)
      // Each stands for a process.
      const processes = Array.from({ length: 4 }, () => {
        const opened = openPool(bounced, { max: 6 })
        const options = preparedStatements === undefined ? {} : { preparedStatements }
        return { opened, ratelimit: new Ratelimit({ db: opened.db, limiter, prefix, ...options }) }
      })
      const keys = Array.from({ length: 10 }, (_, i) => `key ${i}`)
      const outcomes = new Map(keys.map((key) => [key, [] as Outcome[]]))
      for (let round = 0; round < 8; round++) {
        await Promise.all(
          processes.flatMap(({ ratelimit }) =>
            keys.map(async (key) => {
              const told = outcomes.get(key)
              told?.push(await outcomeOf(ratelimit.limit(key)))
              told?.push(...(await Promise.all([1, 2].map(() => outcomeOf(ratelimit.limit(key))))))
              told?.push(await outcomeOf(limitAll([{ ratelimit, key }])))
            }),
          ),
        )
      }
      for (const told of outcomes.values()) {
        expect([count(told, 'granted'), count(told, 'denied')]).toEqual([100, 8 * 4 * 4 - 100])
      }
      for (const { opened } of processes) await expectQuiet(opened)
    })

    test("a refused prepared statement costs no charge, and a caller's transaction does without", async () => {
      const opened = openPool(await through('default_pool_size = 1'), { max: 2 })
      const ratelimit = new Ratelimit({
        db: opened.db,
        limiter,
        prefix: newPrefix('refused'),
        cleanupProbability: 0,
      })
      for (let i = 1; i <= 20; i++) {
        const [one, other] = await Promise.all([ratelimit.limit(SECRET), ratelimit.limit('other')])
        expect([one, other]).toMatchObject(Array(2).fill({ success: true, remaining: 100 - i }))
      }
      await opened.db.transaction(async (tx) => {
        expect(await ratelimit.limit(SECRET, { tx })).toMatchObject({ success: true, remaining: 79 })
      })
      await expectQuiet(opened)
    })

    // PgBouncer refuses with 08P01 whatever has happened. Only what came before a statement is known.
    test('PgBouncer has no room for another client: UNREACHABLE', async () => {
      const bounced = await through('max_client_conn = 1')
      const first = openPool(bounced, { max: 1 })
      const second = openPool(bounced, { max: 1 })
      const limiters = [first, second].map(({ db }) => new Ratelimit({ db, limiter, prefix: 'room' }))
      expect(await limiters[0]?.limit(SECRET)).toMatchObject({ success: true })
      expect(await outcomeOf(limiters[1]?.limit(SECRET) ?? expect.fail())).toBe('UNREACHABLE')
    })

    test('PgBouncer refuses a start-up parameter: UNREACHABLE', async () => {
      const opened = openPool(await through(), { lock_timeout: 1000 })
      const ratelimit = new Ratelimit({ db: opened.db, limiter, prefix: newPrefix('start-up') })
      expect(await outcomeOf(ratelimit.limit(SECRET))).toBe('UNREACHABLE')
    })

    test('PgBouncer gets no connection to the server in time: OUTCOME_UNKNOWN', async () => {
      const bounced = await through('default_pool_size = 1', 'query_wait_timeout = 1')
      const opened = openPool(bounced, { max: 2 })
      const ratelimit = new Ratelimit({
        db: opened.db,
        limiter,
        prefix: newPrefix('wait'),
        cleanupProbability: 0,
      })
      await ratelimit.limit(SECRET)
      const outcome = await opened.db.transaction(async (tx) => {
        await ratelimit.limit('held', { tx })
        return outcomeOf(ratelimit.limit(SECRET))
      })
      expect(await ratelimit.getRemaining(SECRET)).toMatchObject({ used: 1 })
      expect(outcome).toBe('OUTCOME_UNKNOWN')
    })

    test('PgBouncer is stopped: UNREACHABLE, and no call is left', async () => {
      const first = await PgBouncer.start(direct.url)
      const opened = openPool(first.through(direct.url))
      const ratelimit = new Ratelimit({
        db: opened.db,
        limiter,
        prefix: newPrefix('stopped'),
        cleanupProbability: 0,
      })
      await ratelimit.limit(SECRET)
      await first.stop()
      await expect.poll(() => opened.pool.totalCount).toBe(0)
      expect(await outcomeOf(ratelimit.limit(SECRET))).toBe('UNREACHABLE')
      await expectQuiet(opened)
    })
  },
)
