import { beforeAll, expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { TestClock } from '../support/clock.ts'
import { type Db, useDatabase } from '../support/databases.ts'
import { untilWaiting } from '../support/locks.ts'
import { deadlocks } from '../support/statistics.ts'
import { watch } from '../support/watch.ts'

// Reservations with a name, by many connections at once.

const database = useDatabase()
const CRASH = new Error('crash')

function range(length: number): readonly number[] {
  return Array.from({ length }, (_, i) => i)
}

let dbs: readonly Db[]
beforeAll(() => {
  dbs = range(16).map(() => database.connect(2).db)
})

/** The limiters of so many processes. They share connections. */
function processes(count: number, prefix: string, limiter = Ratelimit.fixedWindow(1000, '1h')) {
  const clock = new TestClock()
  return range(count).map((i) => {
    const db = dbs[i % dbs.length] as Db
    return { db, quota: new Ratelimit({ db, limiter, prefix, clock: clock.now, cleanupProbability: 0 }) }
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
        for (const i of range(20)) {
          const name = names[(i * 5 + place) % names.length] as (typeof names)[number]
          const cost = 1 + names.indexOf(name)
          if ((i + place) % 3 === 0) {
            await db
              .transaction(async (tx) => {
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
  const quota = new Ratelimit({ ...config, db })
  const unlucky = new Ratelimit({ ...config, db: broken })
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
  const late = new Ratelimit({ ...config, db: later })
  await expect(late.settle(name, 30)).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  expect(await late.settle(name, 30)).toMatchObject({ repeated: true })
  expect(await quota.getRemaining('key')).toMatchObject({ used: 31 })
})
