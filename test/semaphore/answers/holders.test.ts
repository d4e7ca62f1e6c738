import { expect, test } from 'vitest'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { allowed } from '../../support/allowed.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

let prefixes = 0
function slots(clock: TestClock, own: object = {}): Semaphore {
  const common = { db: database.db, prefix: `holders ${prefixes++}`, limit: 3, cleanupProbability: 0 }
  return new Semaphore({ ...common, lease: '10s', clock: clock.now, ...own })
}

test('the holders of a key, in the order of the slots, from their lease to its end', async () => {
  const clock = new TestClock(1_000_000)
  const jobs = slots(clock)
  expect(await jobs.holders('org')).toEqual([])
  const first = allowed(await jobs.acquire('org'))
  clock.advance(1_000)
  const second = allowed(await jobs.acquire('org'))
  allowed(await jobs.acquire('another'))
  clock.advance(2_000)
  const [one, two] = [
    { slot: 1, fence: first.fence, since: 1_000_000, expires: 1_010_000 },
    { slot: 2, fence: second.fence, since: 1_001_000, expires: 1_011_000 },
  ]
  expect(await jobs.holders('org')).toEqual([one, two])
  expect(await second.extend()).toBe(true)
  expect(await first.release()).toBe(true)
  const extended = { ...two, expires: 1_013_000 }
  expect(await jobs.holders('org')).toEqual([extended])
  const again = allowed(await jobs.acquire('org'))
  expect(await jobs.holders('org')).toEqual([
    { slot: 1, fence: again.fence, since: 1_003_000, expires: 1_013_000 },
    extended,
  ])
  clock.advance(9_999)
  expect(await jobs.holders('org')).toHaveLength(2)
  clock.advance(1)
  expect(await jobs.holders('org')).toEqual([])
})

test('slots of a larger limit, of another lease, and of keys that look alike', async () => {
  const clock = new TestClock(1_000_000)
  const jobs = slots(clock, { limit: 1 })
  const many = await Promise.all(Array.from({ length: 12 }, () => jobs.acquire('org', { limit: 12 })))
  allowed(await jobs.acquire('org#0001', { lease: '1m' }))
  const found = await jobs.holders('org')
  expect(found.map(({ slot }) => slot)).toEqual(many.map((_, place) => place + 1))
  expect(await jobs.holders('org#0001')).toMatchObject([{ slot: 1, expires: 1_060_000 }])
  expect(await jobs.holders('or')).toEqual([])
})

test('a list is one statement, and writes nothing', async () => {
  const { db, statements } = watch(database.db)
  const clock = new TestClock(1_000_000)
  const jobs = slots(clock, { db })
  allowed(await jobs.acquire('org'))
  const rows = () => database.rows('select *, xmin from rate_limit_durable where prefix = $1', [jobs.prefix])
  const before = [await rows(), statements.length] as const
  expect(await jobs.holders('org')).toHaveLength(1)
  expect([await rows(), statements.length]).toEqual([before[0], before[1] + 1])
})

test('a transaction sees its own slot, which has no end', async () => {
  const clock = new TestClock(1_000_000)
  const jobs = slots(clock)
  const alone = allowed(await jobs.acquire('org'))
  clock.advance(1_000)
  await database.db.transaction(async (tx) => {
    const job = allowed(await jobs.acquire('org', { tx }))
    clock.advance(60_000)
    expect(await jobs.holders('org', { tx })).toEqual([
      { slot: 2, fence: job.fence, since: 1_001_000, expires: undefined },
    ])
    expect(alone.fence).toBeLessThan(job.fence)
  })
  expect(await jobs.holders('org')).toEqual([])
})

test('hashed keys, and the clock of the database', async () => {
  const clock = new TestClock(1_000_000)
  const jobs = slots(clock, { hashKeys: true, clock: undefined })
  const { fence } = allowed(await jobs.acquire('ada@example.com'))
  const [holder] = await jobs.holders('ada@example.com')
  expect(holder).toMatchObject({ slot: 1, fence, since: Math.floor(fence / 1000) })
  expect((holder?.expires ?? 0) - (holder?.since ?? 0)).toBe(10_000)
})
