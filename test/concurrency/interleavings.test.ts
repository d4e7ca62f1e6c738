import type pg from 'pg'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { calendarWindow } from '../../src/calendar/index.ts'
import { type Database, type Limiter, limitAll, Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { holdRows } from '../support/locks.ts'

// Two sessions in a forced order: each step waits until the server shows the one before it.

const database = useDatabase()
const open: pg.Client[] = []
let connections: ReturnType<typeof database.connect>[]
beforeAll(() => {
  connections = Array.from({ length: 3 }, () => database.connect(2))
})
afterEach(async () => {
  for (const client of open.splice(0)) await client.query('rollback')
})

/** A process of its own, with a connection of its own. */
function limiterOf(process: number, prefix: string, limiter: Limiter, durable = false): Ratelimit {
  const { db } = connections[process] ?? expect.fail()
  return new Ratelimit({
    timeout: false,
    db,
    limiter,
    prefix,
    durable,
    cleanupProbability: 0,
    connections: 1,
  })
}

/** Resolves when this many sessions of this database wait for a lock. */
async function waiting(sessions = 1): Promise<void> {
  const query = `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
  await expect
    .poll(async () => (await database.rows(query)).length, { interval: 2, timeout: 10_000 })
    .toBe(sessions)
}

/** Holds a row, and nothing else, until the test lets it go. */
async function hold(prefix: string, key = 'key', table = 'rate_limit_ephemeral'): Promise<pg.Client> {
  const holder = await holdRows(database, prefix, [key], table)
  open.push(holder)
  return holder
}

async function isLocked(prefix: string, key = 'key', table = 'rate_limit_ephemeral'): Promise<boolean> {
  const rows = `select 1 from ${table} where prefix = $1 and key = $2`
  expect(await database.rows(rows, [prefix, key])).toHaveLength(1)
  return (await database.rows(`${rows} for update skip locked`, [prefix, key])).length === 0
}

/** A transaction of the caller's does `work`, then another session's call waits for it, then it ends. */
async function whileWaiting<T>(
  ends: 'commit' | 'rollback',
  work: (tx: Database) => Promise<unknown>,
  call: () => Promise<T>,
): Promise<T> {
  const undo = new Error('undo')
  const calls: Promise<T>[] = []
  const held = connections[0]?.db.transaction(async (tx) => {
    await work(tx)
    calls.push(call())
    await waiting()
    if (ends === 'rollback') throw undo
  })
  await held?.catch((error: unknown) => expect(error).toBe(undo))
  return calls[0] ?? expect.fail()
}

const limiters = {
  'fixed window': Ratelimit.fixedWindow(10, '1h'),
  'sliding window': Ratelimit.slidingWindow(10, '1h'),
  'calendar window': calendarWindow(10, 'year'),
  'token bucket': Ratelimit.tokenBucket(10, '1h', 10),
  'continuous token bucket': Ratelimit.tokenBucket(1, '1h', 10, { refill: 'continuous' }),
  'partly filled bucket': Ratelimit.tokenBucket(10, '1h', 20, { initialTokens: 10 }),
}

describe.each(Object.entries(limiters))('%s', (name, limiter) => {
  const ways = {
    limit: (ratelimit: Ratelimit) => ratelimit.limit('key', { rate: 4 }),
    limitAll: async (ratelimit: Ratelimit) => {
      const { results } = await limitAll([{ ratelimit, key: 'key', rate: 4 }])
      return results[0]
    },
  }

  describe.each(Object.entries(ways))('%s', (way, call) => {
    function pair(what: string): [Ratelimit, Ratelimit, string] {
      const prefix = `${name}, ${way}, ${what}`
      return [limiterOf(0, prefix, limiter), limiterOf(1, prefix, limiter), prefix]
    }

    test.each([
      ['commit', { success: false, remaining: 3 }],
      ['rollback', { success: true, remaining: 6 }],
    ] as const)('a first insert under way: %s', async (ends, answer) => {
      const [first, second] = pair(`insert ${ends}`)
      const work = (tx: Database) => first.limit('key', { rate: 7, tx })
      expect(await whileWaiting(ends, work, () => call(second))).toMatchObject(answer)
    })

    test.each([
      ['commit', { success: false, remaining: 0 }],
      ['rollback', { success: true, remaining: 3 }],
    ] as const)('a charge under way: %s', async (ends, answer) => {
      const [first, second] = pair(`charge ${ends}`)
      await first.limit('key', { rate: 3 })
      const work = (tx: Database) => first.limit('key', { rate: 7, tx })
      expect(await whileWaiting(ends, work, () => call(second))).toMatchObject(answer)
    })

    test.each([
      ['commit', { success: true, remaining: name === 'partly filled bucket' ? 16 : 6 }],
      ['rollback', { success: false, remaining: 2 }],
    ] as const)('a reset under way: %s', async (ends, answer) => {
      const [first, second] = pair(`reset ${ends}`)
      await first.limit('key', { rate: 8 })
      const work = (tx: Database) => first.resetUsedTokens('key', { tx })
      expect(await whileWaiting(ends, work, () => call(second))).toMatchObject(answer)
    })

    test('a row that is deleted while calls wait for it is made once more', async () => {
      const [first, second, prefix] = pair('deleted')
      const third = limiterOf(2, prefix, limiter)
      await first.limit('key', { rate: 8 })
      const holder = await hold(prefix)
      const answers = [second, third].map(call)
      await waiting(2)
      await holder.query('delete from rate_limit_ephemeral where prefix = $1', [prefix])
      await holder.query('commit')
      const remaining = (await Promise.all(answers)).map((answer) => answer?.remaining)
      expect(remaining.sort()).toEqual([2, 6])
    })

    test('one of two calls that wait for the last units gets them', async () => {
      const [first, second, prefix] = pair('last')
      const third = limiterOf(2, prefix, limiter)
      await first.limit('key', { rate: 5 })
      const holder = await hold(prefix)
      const answers = [second, third].map(call)
      await waiting(2)
      await holder.query('commit')
      const success = (await Promise.all(answers)).map((answer) => answer?.success)
      expect(success.sort()).toEqual([false, true])
    })
  })
})

describe('a row that ends while calls wait for it', () => {
  const PERIOD = 400
  test.each([
    ['a fixed window', Ratelimit.fixedWindow(10, PERIOD), 6],
    ['a bucket that refills', Ratelimit.tokenBucket(10, PERIOD, 10), 6],
  ])('%s: it is over for the waiting calls', async (name, limiter, remaining) => {
    const [first, second] = [limiterOf(0, name, limiter), limiterOf(1, name, limiter)]
    const { reset } = await first.limit('key', { rate: 10 })
    const holder = await hold(name)
    const answer = second.limit('key', { rate: 4 })
    await waiting()
    const now = `select date_part('epoch', clock_timestamp()) * 1000 as now`
    while (Number((await database.rows(now))[0]?.['now']) <= reset) await new Promise(setImmediate)
    await holder.query('commit')
    expect(await answer).toMatchObject({ success: true, remaining })
  })

  test('an expired row for which calls wait is not swept, and the calls renew it', async () => {
    const expired = { clock: () => new Date(0), cleanupProbability: 0 }
    const limiter = Ratelimit.fixedWindow(10, 1000)
    const db = connections[0]?.db ?? expect.fail()
    await new Ratelimit({ timeout: false, db, limiter, prefix: 'expired', ...expired }).limit('key', {
      rate: 10,
    })
    const [first, second] = [limiterOf(0, 'expired', limiter), limiterOf(1, 'expired', limiter)]
    const holder = await hold('expired')
    const answer = second.limit('key', { rate: 4 })
    await waiting()
    expect(await first.cleanup()).toBe(0)
    await holder.query('commit')
    expect(await answer).toMatchObject({ success: true, remaining: 6 })
    expect(await first.cleanup()).toBe(0)
    expect(await first.getRemaining('key')).toMatchObject({ used: 4 })
  })
})

describe('limitAll locks in one order, whatever the order of its requests', () => {
  const limiter = limiters['fixed window']
  const DURABLE = 'rate_limit_durable'
  const EPHEMERAL = 'rate_limit_ephemeral'
  // In each pair the first one is locked first: by table, then by prefix, then by key.
  const pairs = {
    keys: [
      [EPHEMERAL, 'order', 'a'],
      [EPHEMERAL, 'order', 'b'],
    ],
    prefixes: [
      [EPHEMERAL, 'order a', 'b'],
      [EPHEMERAL, 'order b', 'a'],
    ],
    tables: [
      [DURABLE, 'order b', 'b'],
      [EPHEMERAL, 'order a', 'a'],
    ],
  } as const

  test.each(Object.entries(pairs))('%s', async (_, [first, second]) => {
    const requests = [second, first].map(([table, prefix, key]) => ({
      ...{ ratelimit: limiterOf(1, prefix, limiter, table === DURABLE), key },
    }))
    await limitAll(requests)
    for (const [held, other, isHeldToo] of [
      [second, first, true],
      [first, second, false],
    ] as const) {
      const holder = await hold(held[1], held[2], held[0])
      // Outside of a transaction, a list that waits for a row holds no other one.
      const answer = database.db.transaction((tx) => limitAll(requests, { tx }))
      await waiting()
      expect(await isLocked(other[1], other[2], other[0])).toBe(isHeldToo)
      await holder.query('commit')
      expect(await answer).toMatchObject({ success: true })
    }
  })
})
