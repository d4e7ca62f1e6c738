import { sql } from 'drizzle-orm'
import { beforeAll, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { Ratelimit } from '../../../src/index.ts'
import { Quota, settleExpired } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'
import { range } from '../../support/range.ts'
import { times } from '../../support/runs.ts'
import { deadlocks } from '../../support/statistics.ts'
import { watch } from '../../support/watch.ts'

// Reservations with a name, by many connections at once.

const database = useDatabase()
const CRASH = new Error('crash')

let dbs: readonly Db[]
beforeAll(() => {
  dbs = range(16).map(() => database.connect(2).db)
})

/** The limiters of so many processes. They share connections. */
function processes(count: number, prefix: string, limiter = Ratelimit.fixedWindow(1000, '1h')) {
  const clock = new TestClock()
  return range(count).map((i) => {
    const db = dbs[i % dbs.length] as Db
    return {
      db,
      quota: new Quota({
        durable: false,
        timeout: false,
        db,
        limiter,
        prefix,
        clock: clock.now,
        cleanupProbability: 0,
      }),
    }
  })
}

test.each(['a', 'z'])('32 settle one name at once: it is settled once, prefix %s', async (prefix) => {
  const all = processes(32, prefix)
  const [{ quota }] = all as [(typeof all)[number]]
  await quota.reserve('key', { rate: 100, id: 'job', expires: '10m' })
  const answers = await Promise.all(all.map(({ quota }) => quota.settle({ key: 'key', id: 'job' }, 30)))
  expect(answers.filter(({ repeated }) => !repeated)).toHaveLength(1)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 30 })
})

test.each(['a b', 'z b'])('32 reserve one name at once: it is charged once, prefix %s', async (prefix) => {
  const all = processes(32, prefix)
  const [{ quota }] = all as [(typeof all)[number]]
  const answers = await Promise.all(
    all.map(({ quota }) => quota.reserve('key', { rate: 100, id: 'job', expires: '10m' })),
  )
  expect(answers.filter((answer) => answer.success && !answer.repeated)).toHaveLength(1)
  expect(await quota.getRemaining('key')).toMatchObject({ used: 100 })
})

test.each(['a c', 'z c'])(
  'reserve, settle and limit in any order never deadlock, prefix %s',
  async (prefix) => {
    const all = processes(8, prefix)
    const names = range(6).map((i) => ({ key: `key ${i % 2}`, id: `job ${i}` }))
    const used = new Map<string, number>()
    await Promise.all(
      all.map(async ({ db, quota }, place) => {
        for (const i of range(times(20))) {
          const name = names[(i * 5 + place) % names.length] as (typeof names)[number]
          const cost = 1 + names.indexOf(name)
          if ((i + place) % 3 === 0) {
            await db
              .transaction(async (tx) => {
                // It holds the row of the limit before it asks for the row of the name.
                if (i % 2 === 0) await quota.limit(name.key, { tx })
                await quota.reserve(name.key, { rate: 10, id: name.id, expires: '1h', tx })
                await quota.settle(name, cost, { tx })
                throw CRASH
              })
              .catch((error: unknown) => expect(error).toBe(CRASH))
          } else {
            await quota.reserve(name.key, { rate: 10, id: name.id, expires: '1h' })
            await quota.settle(name, cost)
            used.set(name.id, cost)
          }
          await quota.limit('key 0', { rate: 0 })
        }
      }),
    )
    expect(used.size).toBe(names.length)
    const [{ quota }] = all as [(typeof all)[number]]
    expect(await quota.getRemaining('key 0')).toMatchObject({ used: 1 + 3 + 5 })
    expect(await quota.getRemaining('key 1')).toMatchObject({ used: 2 + 4 + 6 })
    expect(
      await deadlocks(
        database,
        all.map(({ db }) => db),
      ),
    ).toBe(0)
  },
)

test.each([
  ['commit', true],
  ['rollback', false],
] as const)('a settlement waits for another one that is open, and finds its %s', async (_, commits) => {
  const [one, other] = processes(2, `open ${commits}`) as [
    ReturnType<typeof processes>[number],
    ReturnType<typeof processes>[number],
  ]
  await one.quota.reserve('key', { rate: 100, id: 'job', expires: '10m' })
  const name = { key: 'key', id: 'job' }
  let second: Promise<unknown> | undefined
  const first = one.db.transaction(async (tx) => {
    await one.quota.settle(name, 30, { tx })
    second = other.quota.settle(name, 30)
    await untilWaiting(database)
    if (!commits) throw CRASH
  })
  await first.catch((error: unknown) => expect(error).toBe(CRASH))
  const settled = await second
  expect(settled).toMatchObject({ success: true, remaining: 970 })
  expect('repeated' in Object(settled)).toBe(commits)
  expect(await one.quota.getRemaining('key')).toMatchObject({ used: 30 })
})

test('a settlement whose answer is lost is tried again, and settled once', async () => {
  const [db] = dbs as [Db]
  let isLost = false
  const lossy = watch(db).db
  const execute = lossy.execute.bind(lossy)
  const broken: typeof lossy = {
    ...lossy,
    execute: async (query) => {
      const answer = await execute(query)
      if (isLost) throw Object.assign(new Error('Connection terminated unexpectedly'))
      return answer
    },
  }
  const config = { limiter: Ratelimit.fixedWindow(1000, '1h'), prefix: 'lost', cleanupProbability: 0 }
  const quota = new Quota({ durable: false, timeout: false, ...config, db })
  const unlucky = new Quota({ durable: false, timeout: false, ...config, db: broken })
  const name = { key: 'key', id: 'job' }
  const open = { rate: 100, id: 'job', expires: '10m' } as const
  await quota.limit('key')
  isLost = true
  await expect(unlucky.reserve('key', open)).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  isLost = false
  expect(await unlucky.reserve('key', open)).toMatchObject({ repeated: true })
  let answers = 0
  const later: typeof lossy = {
    ...lossy,
    execute: async (query) => {
      const answer = await execute(query)
      // The first statement only looks.
      if (++answers === 2) throw new Error('Connection terminated unexpectedly')
      return answer
    },
  }
  const late = new Quota({ durable: false, timeout: false, ...config, db: later })
  await expect(late.settle(name, 30)).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  expect(await late.settle(name, 30)).toMatchObject({ repeated: true })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 31 })
})

test('settle and settleExpired race: each estimate ends once, and nothing is lost', async () => {
  const clock = new TestClock()
  const limits = dbs.map(
    (db) =>
      new Credits({
        timeout: false,
        ...{ db, prefix: 'race', durable: true, clock: clock.now },
        cleanupProbability: 0,
      }),
  )
  const [quota] = limits as [Credits]
  const names = range(60).map((i) => ({ key: `key ${i % 3}`, id: `job ${i}` }))
  for (const key of ['key 0', 'key 1', 'key 2']) await quota.grant(key, 1000)
  for (const { key, id } of names) await quota.reserve(key, { rate: 10, id, expires: '1m' })
  clock.advance(60_000)
  let [settled, late, ended] = [0, 0, 0]
  await Promise.all(
    limits.map(async (own, place) => {
      if (place % 2 === 0) {
        const db = dbs[place] as Db
        for (;;) {
          const some = await db.transaction(async (tx) => {
            await own.grant('key 0', 1, { tx })
            return settleExpired(own, { tx, as: 'release', limit: 7 })
          })
          ended += some.length
          if (some.length === 0) break
        }
      } else {
        for (const i of range(names.length)) {
          const name = names[(i * 7 + place) % names.length] as (typeof names)[number]
          const answer = await own.settle(name, 3).catch((error: unknown) => error)
          if (Object(answer).code === 'ALREADY_SETTLED') late++
          else if (!Object(answer).repeated) settled++
          expect(Object(answer).code ?? 'ALREADY_SETTLED').toBe('ALREADY_SETTLED')
        }
      }
    }),
  )
  expect(settled + ended).toBe(names.length)
  expect(late).toBeGreaterThan(0)
  const used = await Promise.all(range(3).map(async (i) => (await quota.getRemaining(`key ${i}`)).used))
  expect(used.reduce((sum, each) => sum + each, 0)).toBe(3 * settled)
  expect(await deadlocks(database, [...dbs])).toBe(0)
})

test('settleExpired skips what an open transaction settles, and finds it after its connection is killed', async () => {
  const clock = new TestClock()
  const config = { limiter: Ratelimit.fixedWindow(1000, '1h'), prefix: 'killed', clock: clock.now }
  const quotas = dbs.map(
    (db) => new Quota({ durable: false, timeout: false, ...config, db, cleanupProbability: 0 }),
  )
  const [one, two] = quotas as [Quota, Quota]
  const [db, other] = dbs as [Db, Db]
  for (const id of ['held', 'free']) await one.reserve(id, { rate: 10, id, expires: '1m' })
  clock.advance(60_000)
  const end = () => other.transaction((tx) => settleExpired(two, { tx, as: 'release' }))
  const killed = db.transaction(async (tx) => {
    await one.settle({ key: 'held', id: 'held' }, 4, { tx })
    expect(await end()).toMatchObject([{ id: 'free' }])
    const backend = sql`select pg_backend_pid()::text as pid`
    const [{ pid } = {}] = Object(await tx.execute(backend)).rows as { pid?: string }[]
    await database.rows(`select pg_terminate_backend(${Number(pid)})`)
    await tx.execute(backend)
  })
  await expect(killed).rejects.toThrow()
  expect(await one.getRemaining('held')).toMatchObject({ used: 10 })
  expect(await end()).toMatchObject([{ id: 'held', returned: 10 }])
  expect(await one.getRemaining('held')).toMatchObject({ used: 0 })
})
