import type pg from 'pg'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { Credits } from '../../src/credits/index.ts'
import { type AllOptions, type LimitResult, limitAll, Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { gate } from '../support/gate.ts'
import { keysNamed } from '../support/keys.ts'
import { holdRows, untilWaiting } from '../support/locks.ts'
import { PATIENTLY } from '../support/patience.ts'
import { fakeTime, useFakeTime } from '../support/timers.ts'
import { watch } from '../support/watch.ts'

const database = useDatabase()
useFakeTime()
const limiter = Ratelimit.fixedWindow(1000, '1h')
const holders: pg.Client[] = []

afterEach(async () => {
  vi.useRealTimers()
  for (const holder of holders.splice(0)) await holder.query('rollback')
})

function limiterOn(prefix: string, connections = 2): Ratelimit {
  // One connection for each statement that may be under way, and four for those that may wait.
  const { db } = database.connect(connections + 4)
  return new Ratelimit({ timeout: false, db, limiter, prefix, connections, cleanupProbability: 0 })
}

async function holding(prefix: string, keys: readonly string[]): Promise<pg.Client> {
  const holder = await holdRows(database, prefix, keys)
  holders.push(holder)
  return holder
}

async function making(prefix: string, key: string): Promise<pg.Client> {
  const maker = await database.client()
  await maker.query('begin')
  holders.push(maker)
  await maker.query(
    `insert into rate_limit_ephemeral (prefix, key, count, window_start, expires_at)
      values ($1, $2, 7, now(), now() + interval '1 hour')`,
    [prefix, key],
  )
  return maker
}

function all(ratelimit: Ratelimit, those: readonly string[]): Promise<LimitResult[]> {
  return Promise.all(those.map((key) => ratelimit.limit(key)))
}

/** Two calls for each key, the second one later, and which of them have been answered. */
async function outstanding(ratelimit: Ratelimit, those: readonly string[]) {
  const answered: string[] = []
  const calls: Promise<LimitResult>[] = []
  for (const rate of [1, 2]) {
    for (const key of those) {
      const call = ratelimit.limit(key, { rate })
      call.then(() => answered.push(key))
      calls.push(call)
    }
    // By now the first ones have been sent.
    await all(ratelimit, keysNamed('between', 3))
  }
  return { answered, answers: Promise.all(calls) }
}

/** 200 calls of every kind. */
async function checkOthers(ratelimit: Ratelimit): Promise<void> {
  for (let i = 0; i < 10; i++) {
    await ratelimit.limit('known 1')
    await ratelimit.limit(`single ${i}`)
    await all(ratelimit, keysNamed('known', 6))
    await all(ratelimit, keysNamed(`new ${i}`, 6))
    await all(ratelimit, [...keysNamed('known', 3), ...keysNamed(`mixed ${i}`, 3)])
  }
}

describe('keys that others hold delay their own callers only', () => {
  test('of two rows that two transactions hold, and of one that a third is making', async () => {
    const ratelimit = limiterOn('few')
    await all(ratelimit, [...keysNamed('known', 6), 'held 1', 'held 2'])
    await holding('few', ['held 1'])
    await holding('few', ['held 2'])
    const maker = await making('few', 'made')
    const { answered, answers } = await outstanding(ratelimit, ['held 1', 'held 2', 'made'])
    await checkOthers(ratelimit)
    expect(answered).toEqual([])
    await maker.query('commit')
    for (const holder of holders) await holder.query('rollback')
    expect((await answers).map(({ remaining }) => remaining)).toEqual([998, 998, 992, 996, 996, 990])
  })

  test('of more rows than statements that may wait', async () => {
    const ratelimit = limiterOn('many')
    const held = keysNamed('held', 9)
    await all(ratelimit, [...keysNamed('known', 6), ...held])
    const holder = await holding('many', held)
    const { answered, answers } = await outstanding(ratelimit, held)
    await checkOthers(ratelimit)
    expect(answered).toEqual([])
    await holder.query('rollback')
    expect((await answers).map(({ remaining }) => remaining)).toEqual([
      ...Array(9).fill(998),
      ...Array(9).fill(996),
    ])
  })

  test('of a row whose transaction rolls back', async () => {
    const ratelimit = limiterOn('given up')
    const maker = await making('given up', 'made')
    const { answered, answers } = await outstanding(ratelimit, ['made'])
    await checkOthers(ratelimit)
    expect(answered).toEqual([])
    await maker.query('rollback')
    expect((await answers).map(({ remaining }) => remaining)).toEqual([999, 997])
  })

  test('held keys use four connections at most', async () => {
    const ratelimit = limiterOn('connections', 1)
    const held = keysNamed('held', 20)
    await all(ratelimit, held)
    const holder = await holding('connections', held)
    const { answers } = await outstanding(ratelimit, held)
    await untilWaiting(database, 4)
    await checkOthers(ratelimit)
    expect(await untilWaiting(database, 4)).toHaveLength(4)
    await holder.query('rollback')
    await answers
  })
})

test('a held row has more than a new one would have', async () => {
  const { db } = database.connect(6)
  const options = { durable: false, timeout: false, cleanupProbability: 0 } as const
  const credits = new Credits({ db, prefix: 'filled', ...options })
  await credits.grant('held', 10)
  const holder = await holding('filled', ['held'])
  const answer = credits.limit('held', { rate: 5 })
  await untilWaiting(database, 1)
  await holder.query('rollback')
  expect(await answer).toMatchObject({ success: true, remaining: 5 })
})

test('without coalescing, held rows delay their own callers only, beyond their timeout too', async () => {
  // postgres.js queues statements behind busy ones when it has no connection left.
  const { db } = database.connect(20)
  const config = { db, limiter, prefix: 'direct', cleanupProbability: 0, coalesce: false } as const
  const ratelimit = new Ratelimit({ ...config, timeout: false })
  const hasty = new Ratelimit({ ...config, timeout: '1m' })
  const held = keysNamed('held', 5)
  await all(ratelimit, [...keysNamed('known', 6), ...held])
  const holder = await holding('direct', held)
  const answers = all(ratelimit, held)
  await untilWaiting(database, 5)
  fakeTime()
  const ended = Promise.allSettled(held.map((key) => hasty.limit(key)))
  // What was not sent would be a `TIMEOUT`.
  await untilWaiting(database, 10)
  vi.advanceTimersByTime(60_000)
  for (const each of await ended) expect(each).toMatchObject({ reason: { code: 'OUTCOME_UNKNOWN' } })
  // Five time-outs in a row are not an outage.
  for (const { success } of await all(hasty, keysNamed('known', 3))) expect(success).toBe(true)
  await checkOthers(ratelimit)
  await holder.query('rollback')
  for (const { success } of await answers) expect(success).toBe(true)
})

test.each([true, false])(
  'a wait that ends just before its row is found held leaves nothing behind, coalesce: %s',
  async (coalesce) => {
    const answer = gate()
    const work: Promise<unknown>[] = []
    const { db, statements } = watch(database.connect(6).db, () => answer.opened)
    const common = { limiter, prefix: `left ${coalesce}`, cleanupProbability: 0 }
    const ratelimit = new Ratelimit({ ...common, db, coalesce, waitUntil: (each) => void work.push(each) })
    const other = new Ratelimit({ ...common, db: database.db })
    await other.limit('held')
    await holding(common.prefix, ['held'])
    const controller = new AbortController()
    const { signal } = controller
    const waiting = ratelimit.blockUntilReady('held', '1h', { signal }).catch((error: unknown) => error)
    await vi.waitUntil(() => statements.length === 1, PATIENTLY)
    controller.abort('enough')
    expect(await waiting).toBe('enough')
    answer.open()
    expect(await Promise.all(work)).toHaveLength(1)
    // One finds no row that is free, and one makes none. None waits for the row.
    expect(statements).toHaveLength(2)
    expect(await other.getRemaining('held')).toMatchObject({ used: 1 })
  },
)

test('in a batch of new keys of which another transaction is making one, the others are decided at once', async () => {
  const { db, statements } = watch(database.connect(5).db)
  const ratelimit = new Ratelimit({
    timeout: false,
    db,
    limiter,
    prefix: 'batch',
    connections: 1,
    cleanupProbability: 0,
  })
  const maker = await making('batch', 'new 31')
  const made = ratelimit.limit('new 31')
  const others = keysNamed('new', 100).filter((key) => key !== 'new 31')
  for (const { remaining } of await all(ratelimit, others)) expect(remaining).toBe(999)
  // One that finds no rows, one that meets the lock, and halves down to one key, for which two more wait.
  expect(statements.length).toBeLessThanOrEqual(2 + 2 * Math.ceil(Math.log2(100)) + 2)
  await maker.query('commit')
  expect(await made).toMatchObject({ success: true, remaining: 1000 - 7 - 1 })
})

test('lists that wait for held rows do not delay those with new keys', async () => {
  const ratelimit = limiterOn('listed', 8)
  const held = keysNamed('held', 6)
  await all(ratelimit, held)
  const holder = await holding('listed', held)
  const listOf = (...keys: string[]) => limitAll(keys.map((key) => ({ ratelimit, key })))
  let answered = 0
  const waiting = held.map((key) => listOf(key, `${key} again`).finally(() => answered++))
  await untilWaiting(database, 4)
  for (let i = 0; i < 3; i++) {
    const answers = await Promise.all(keysNamed(`new ${i}`, 10).map((key) => listOf(key, `${key} again`)))
    expect(answers.every(({ success }) => success)).toBe(true)
  }
  expect(answered).toBe(0)
  expect(await untilWaiting(database, 4)).toHaveLength(4)
  await holder.query('rollback')
  for (const { success } of await Promise.all(waiting)) expect(success).toBe(true)
  for (const key of held) expect(await ratelimit.getRemaining(key)).toMatchObject({ used: 2 })
})

test('a list whose time is over behind others that wait for held rows was charged nothing', async () => {
  const { db } = database.connect(12)
  const common = { db, limiter, cleanupProbability: 0 }
  const patient = new Ratelimit({ ...common, prefix: 'patient', timeout: false })
  const hurried = new Ratelimit({ ...common, prefix: 'hurried', timeout: '500ms' })
  const held = keysNamed('held', 4)
  await all(patient, held)
  await all(hurried, ['free', 'other'])
  const holder = await holding('patient', held)
  const once = { id: 'event', for: '1h' } as const
  const listed = (ratelimit: Ratelimit, key: string, options?: AllOptions) =>
    limitAll([{ ratelimit, key }], options)
  const found = await db.transaction(async (tx) => {
    // It inserts the row of the id.
    await listed(hurried, 'other', { once, tx })
    const waiting = held.map((key) => listed(patient, key))
    await untilWaiting(database, 4)
    const behind = await listed(hurried, 'free', { once }).catch((error: unknown) => error)
    await holder.query('rollback')
    await Promise.all(waiting)
    return behind
  })
  expect(found).toMatchObject({ code: 'TIMEOUT', contended: true })
})

test('with held keys nothing is charged twice, and nothing is lost', async () => {
  const ratelimit = limiterOn('exact')
  const other = limiterOn('exact')
  const some = keysNamed('key', 5)
  await Promise.all(
    [ratelimit, other].map(async (one) => {
      for (let i = 0; i < 40; i++) {
        const holder = i % 4 === 0 ? await holding('exact', [`key ${i % 5}`]) : undefined
        const calls = all(one, [...some, ...some])
        await holder?.query('commit')
        await calls
      }
    }),
  )
  for (const key of some) expect(await ratelimit.getRemaining(key)).toMatchObject({ used: 2 * 40 * 2 })
})
