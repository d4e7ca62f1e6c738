import { type Scheduled, schedule } from 'drizzle-ratelimit/schedule'
import { expect, test } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { holdRows, untilWaiting } from '../../support/locks.ts'
import { times } from '../../support/runs.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()

test('start times of 12 processes are spaced exactly, in the order of their answers', async () => {
  const limiter = Ratelimit.gcra(100, '1s', { burst: 1 })
  const processes = Array.from(
    { length: 12 },
    () =>
      new Ratelimit({
        timeout: false,
        db: database.connect(1).db,
        limiter,
        prefix: 'start times',
        cleanupProbability: 0,
      }),
  )
  const turns = await Promise.all(
    processes.map(async (ratelimit) => {
      const own: number[] = []
      for (let i = 0; i < times(20); i++) {
        const turn = await schedule(ratelimit, 'key', { within: '1h' })
        if (turn.success) own.push(turn.startsAt)
      }
      // A later call of one process starts later.
      expect(own).toEqual(own.toSorted((a, b) => a - b))
      return own
    }),
  )
  const starts = turns.flat().toSorted((a, b) => a - b)
  expect(starts).toHaveLength(12 * times(20))
  const gaps = starts.slice(1).map((start, i) => start - (starts[i] as number))
  expect(Math.min(...gaps)).toBe(10)
})

test('a held row delays its own callers only, and a start that comes too late is cancelled', async () => {
  const { db } = database.connect(8)
  const limiter = Ratelimit.gcra(1, '1h', { burst: 1 })
  const config = { limiter, prefix: 'held starts', cleanupProbability: 0 }
  const ratelimit = new Ratelimit({ timeout: false, ...config, db })
  const watched = watch(db)
  const hasty = new Ratelimit({ ...config, db: watched.db, timeout: 2_000 })
  const begin = (by: Ratelimit, key: string) => schedule(by, key, { within: '10h' })
  await Promise.all(['held', 'free'].map((key) => begin(ratelimit, key)))
  await db.transaction(async (tx) => {
    await schedule(ratelimit, 'held', { within: '10h', tx })
    const late = expect(begin(hasty, 'held')).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    expect(await begin(hasty, 'free')).toMatchObject({ success: true })
    await late
  })
  // The next call of the key comes after the cancel.
  await expect.poll(() => watched.statements.at(-1)).toContain('unpromised')
  const next = await begin(hasty, 'held')
  expect(next.success && Math.round(next.delay / 3_600_000)).toBe(2)
})

test('cancels at the same time as calls let no two calls start together', async () => {
  const limiter = Ratelimit.gcra(100, '1s', { burst: 1 })
  const kept: number[] = []
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      const ratelimit = new Ratelimit({
        timeout: false,
        db: database.connect(1).db,
        limiter,
        prefix: 'cancels',
      })
      for (let i = 0; i < times(20); i++) {
        const turn = await schedule(ratelimit, 'key', { within: '1h' })
        if (!turn.success) continue
        if (Math.random() < 0.5) await turn.cancel()
        else kept.push(turn.startsAt)
      }
    }),
  )
  const starts = kept.toSorted((a, b) => a - b)
  const gaps = starts.slice(1).map((start, i) => start - (starts[i] as number))
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(10)
})

test('12 processes with one id have one start, and of their cancels one gives back', async () => {
  const limiter = Ratelimit.gcra(10, '1h', { burst: 1 })
  const processes = Array.from(
    { length: 12 },
    () => new Ratelimit({ db: database.connect(1).db, limiter, prefix: 'one start', timeout: false }),
  )
  const [own] = processes as [Ratelimit]
  await schedule(own, 'key', { within: 0 })
  for (let round = 0; round < Math.max(times(5), 2); round++) {
    const once = { id: 'job', for: '1d' } as const
    const turns = await Promise.all(
      processes.map((ratelimit) => schedule(ratelimit, 'key', { within: '1h', once })),
    )
    const given = turns.flatMap((turn) => (turn.success ? [turn] : []))
    expect(given).toHaveLength(12)
    expect(given.filter(({ repeated }) => !repeated)).toHaveLength(1)
    expect(new Set(given.map(({ startsAt }) => startsAt)).size).toBe(1)
    // Each id is one unit, so a call without one starts after one interval more.
    expect(Math.round((given[0]?.delay ?? 0) / 360_000)).toBe(1)
    const cancelled = await Promise.all(given.map((turn) => turn.cancel()))
    expect(cancelled.filter(Boolean)).toHaveLength(1)
  }
})

test('an id has one start though a call that may wait for far less meets it as it is given', async () => {
  const limiter = Ratelimit.gcra(1, '1m', { burst: 1 })
  const { db } = database.connect(3)
  const ratelimit = new Ratelimit({
    db,
    limiter,
    prefix: 'a far start',
    cleanupProbability: 0,
    timeout: false,
  })
  const once = { id: 'job', for: '1m' } as const
  for (let i = 0; i < 5; i++) await schedule(ratelimit, 'far', { within: '1h' })
  await ratelimit.limit('near', { rate: 0.5 })
  const holder = await holdRows(database, 'a far start', ['near'])
  const near = schedule(ratelimit, 'near', { within: '1s', rate: 0.5, once })
  await untilWaiting(database)
  // The first one has found the id free.
  const far = await schedule(ratelimit, 'far', { within: '1h', once })
  await holder.query('commit')
  expect(await near).toMatchObject({ success: true, repeated: true, startsAt: (far as Scheduled).startsAt })
  expect(await schedule(ratelimit, 'near', { within: 0, rate: 0.5 })).toMatchObject({ success: true })
})

test.each(['a prefix before that of ids', 'the prefix after that of ids'])(
  '%s: a start with an id, and its cancel, lock limit and id in the order of every list',
  async (prefix) => {
    const limiter = Ratelimit.gcra(10, '1h', { burst: 1 })
    const { db } = database.connect(2)
    const clock = new TestClock(1_000_000)
    const options = { limiter, prefix, clock: clock.now, timeout: false, cleanupProbability: 0 } as const
    const ratelimit = new Ratelimit({ db, ...options })
    const holder = await database.client()
    const lock = (key: string, own: string) =>
      holder.query(
        `select from rate_limit_ephemeral where prefix = '${own}' and key = '${key}' for update nowait`,
      )
    const rows = [
      ['key', prefix],
      ['job', `drizzle-ratelimit/once/${prefix}`],
    ].toSorted(([, one = ''], [, other = '']) => (one < other ? -1 : 1)) as [string, string][]
    const [first, second] = rows as [[string, string], [string, string]]
    const meanwhile = async <T>(work: () => Promise<T>) => {
      await holder.query('begin')
      await lock(...first)
      const working = work()
      await untilWaiting(database)
      // Who waits for the first row must not hold the second.
      await lock(...second)
      await holder.query('commit')
      return working
    }
    const once = { id: 'job', for: '1h' } as const
    await ratelimit.limit('key', { once })
    // There are rows for both, and the id is free again.
    clock.advance(86_400_000)
    await ratelimit.limit('key')
    const turn = await meanwhile(() => schedule(ratelimit, 'key', { within: '10h', once }))
    expect(turn).toMatchObject({ success: true, delay: 360_000 })
    expect(turn).not.toHaveProperty('repeated')
    expect(await meanwhile(async () => turn.success && turn.cancel())).toBe(true)
  },
)
