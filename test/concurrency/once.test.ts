import { expect, test } from 'vitest'
import { Credits } from '../../src/credits/index.ts'
import { type Database, limitAll, type Once, Ratelimit } from '../../src/index.ts'
import { spend } from '../../src/quota/index.ts'
import { type Db, useDatabase } from '../support/databases.ts'
import { untilWaiting } from '../support/locks.ts'
import { range } from '../support/range.ts'
import { times } from '../support/runs.ts'
import { deadlocks } from '../support/statistics.ts'
import { isTake, watch } from '../support/watch.ts'

// Each id is charged once, whoever else has it at the same time.

const database = useDatabase()

function once(id: string): Once {
  return { id, for: '1d' }
}

/** A transaction that has done some work and stays open. Returns a function that ends it. */
async function open(
  db: Db,
  end: string,
  work: (tx: Database) => Promise<void>,
): Promise<() => Promise<void>> {
  let finish = () => {}
  let ended: Promise<void> | undefined
  await new Promise<void>((begun) => {
    const over = new Promise<void>((resolve) => {
      finish = resolve
    })
    const transaction = db.transaction(async (tx) => {
      await work(tx)
      begun()
      await over
      if (end === 'rollback') throw UNDO
    })
    ended = transaction.catch((error: unknown) => expect(error).toBe(UNDO))
  })
  return async () => {
    finish()
    await ended
  }
}

const UNDO = new Error('undo')

test('24 connections charge the same ids on three keys: each id once, and no deadlock', async () => {
  const count = times(100)
  const pools = range(24).map(() => database.connect(2).db)
  const options = { limiter: Ratelimit.fixedWindow(1000, '1d'), prefix: 'ids' }
  const answers = await Promise.all(
    pools.map(async (db, process) => {
      const ratelimit = new Ratelimit({ timeout: false, db, ...options })
      return Promise.all(
        // Each process has them in another order.
        range(count)
          .map((i) => (i * 37 + process * 13) % count)
          .map((event) => ratelimit.limit(`key ${event % 3}`, { once: once(`event ${event}`) })),
      )
    }),
  )
  const charged = answers.flat().filter((answer) => answer.success && !answer.repeated)
  expect(charged).toHaveLength(count)
  const ratelimit = new Ratelimit({ timeout: false, db: database.db, ...options })
  const used = await Promise.all(range(3).map(async (i) => (await ratelimit.getRemaining(`key ${i}`)).used))
  expect(used).toEqual(range(3).map((i) => Math.ceil((count - i) / 3)))
  expect(await deadlocks(database, pools)).toBe(0)
})

test('24 connections on a limit stay within it, and an id that was denied can be used later', async () => {
  const pools = range(24).map(() => database.connect(2).db)
  const [limit, ids] = [times(40), times(60)]
  let now = Date.UTC(2026, 0, 1)
  const options = { limiter: Ratelimit.fixedWindow(limit, '1h'), prefix: 'few', clock: () => new Date(now) }
  const limits = pools.map((db) => new Ratelimit({ timeout: false, db, ...options }))
  const round = async () => {
    const answers = await Promise.all(
      limits.flatMap((ratelimit) =>
        range(ids).map(async (event) => {
          const answer = await ratelimit.limit('key', { once: once(`event ${event}`) })
          return { event, isCharged: answer.success && !answer.repeated }
        }),
      ),
    )
    return answers.flatMap(({ event, isCharged }) => (isCharged ? [event] : []))
  }
  const first = await round()
  expect(first).toHaveLength(limit)
  now += 3_600_000
  const second = await round()
  expect([...first, ...second].toSorted((one, other) => one - other)).toEqual(range(ids))
})

test('a new id of a known key is one statement, and so is a repeated one', async () => {
  const { db, statements } = watch(database.connect(4).db)
  const common = { db, cleanupProbability: 0 }
  const window = new Ratelimit({
    timeout: false,
    ...common,
    limiter: Ratelimit.fixedWindow(100, '1d'),
    prefix: 'one window',
  })
  const balance = new Credits({ timeout: false, ...common, prefix: 'one balance' })
  await window.limit('key')
  await balance.grant('key', 10)
  const both = [window, balance].map((ratelimit) => ({ ratelimit, key: 'key' }))
  const calls = [
    (id: string) => window.limit('key', { once: once(id) }),
    (id: string) => window.limit('key', { rate: 200, force: true, once: once(`${id}, forced`) }),
    (id: string) => balance.grant('key', 1, { once: once(id) }),
    (id: string) => limitAll(both, { once: once(`${id}, all`) }),
    (id: string) => spend(both, { rate: 1, once: once(`${id}, spent`) }),
  ]
  for (const call of calls) {
    for (const id of ['new', 'new', 'other']) {
      statements.length = 0
      await call(id)
      expect(statements).toHaveLength(1)
    }
  }
})

test('new ids of many keys share statements, and so do those of one key', async () => {
  const { db, statements } = watch(database.connect(4).db)
  const limiter = Ratelimit.fixedWindow(30, '1d')
  const ratelimit = new Ratelimit({ timeout: false, db, limiter, prefix: 'shared', cleanupProbability: 0 })
  const keys = range(60).map((i) => `key ${i}`)
  for (const key of [...keys, 'one']) await ratelimit.limit(key)
  statements.length = 0
  const ofMany = await Promise.all(keys.map((key) => ratelimit.limit(key, { once: once(key) })))
  expect(ofMany.every((answer) => answer.success && answer.remaining === 28)).toBe(true)
  // The server decides one half while this process sends the other.
  expect(statements.length).toBeLessThanOrEqual(2)
  statements.length = 0
  const ofOne = await Promise.all(range(60).map((i) => ratelimit.limit('one', { once: once(`one ${i}`) })))
  const left = ofOne.flatMap((answer) => (answer.success ? [answer.remaining] : []))
  expect(left.toSorted((one, other) => other - one)).toEqual(range(29).map((i) => 28 - i))
  expect(statements).toHaveLength(1)
  const again = await Promise.all(range(60).map((i) => ratelimit.limit('one', { once: once(`one ${i}`) })))
  expect(again.filter(({ success }) => success)).toHaveLength(29)
  expect(await ratelimit.getRemaining('one')).toMatchObject({ used: 30 })
})

test.each(['commit', 'rollback'])(
  'a transaction that has the id open delays its repetition only, until its %s',
  async (end) => {
    const { db, statements } = watch(database.connect(6).db)
    const options = { limiter: Ratelimit.fixedWindow(10, '1d'), prefix: `open ${end}`, cleanupProbability: 0 }
    const ratelimit = new Ratelimit({ timeout: false, db, ...options })
    for (const key of ['one', 'two', 'three']) await ratelimit.limit(key)
    const holder = await open(database.connect(1).db, end, async (tx) => {
      await ratelimit.limit('one', { tx, once: once('event') })
    })
    statements.length = 0
    const repeated = ratelimit.limit('two', { once: once('event') })
    // They share its first statement, which does not wait.
    const others = await Promise.all(
      range(8).map((i) => ratelimit.limit('three', { once: once(`event ${i}`) })),
    )
    expect(others.every(({ success }) => success)).toBe(true)
    await untilWaiting(database)
    expect(await ratelimit.limit('three', { once: once('one more') })).toMatchObject({ remaining: 0 })
    await holder()
    const answer = await repeated
    expect(answer).toMatchObject({ success: true, remaining: end === 'commit' ? 9 : 8 })
    expect('repeated' in answer).toBe(end === 'commit')
    expect(await ratelimit.getRemaining('two')).toMatchObject({ used: end === 'commit' ? 1 : 2 })
    expect(statements.filter(isTake).length).toBeGreaterThan(0)
  },
)

test('an id that a transaction inserts while a shared statement runs is not charged twice', async () => {
  const holder = await database.client()
  const prefix = 'race'
  const ratelimit = new Ratelimit({
    timeout: false,
    ...{ db: database.db, prefix, limiter: Ratelimit.fixedWindow(8, '1d'), cleanupProbability: 0 },
  })
  await ratelimit.limit('key')
  const ids = range(9).map((i) => `event ${i}`)
  // Another process has used these ids, and their rows are locked: a statement that skips them cannot insert.
  for (const id of ids.slice(0, 3)) await ratelimit.limit('elsewhere', { once: once(id) })
  await holder.query(
    `begin; select 1 from rate_limit_ephemeral where prefix like '%${prefix}' and key like 'event%' for update`,
  )
  const calls = Promise.all(ids.map((id) => ratelimit.limit('key', { once: once(id) })))
  await untilWaiting(database)
  await holder.query('commit')
  const answers = await calls
  expect(answers.map((answer) => answer.success && answer.repeated === true).slice(0, 3)).toEqual([
    true,
    true,
    true,
  ])
  expect(answers.slice(3).filter(({ success }) => success)).toHaveLength(6)
  expect(await ratelimit.getRemaining('key')).toMatchObject({ used: 7 })
})

test('ids of a plan without a limit are not charged twice when the table has outgrown the plan', async () => {
  const { db, limiter } = { db: database.db, limiter: Ratelimit.unlimited() }
  const insert = `insert into rate_limit_ephemeral (prefix, key, expires_at)
    select 'large', repeat('key', 50) || i, now() from generate_series(1, 1000) i`
  await database.rows(insert)
  const ratelimit = new Ratelimit({ timeout: false, db, limiter, prefix: 'unlimited', cleanupProbability: 0 })
  const answers = await Promise.all(range(9).map((i) => ratelimit.limit('key', { once: once(`event ${i}`) })))
  expect(answers.filter((answer) => answer.success && answer.repeated)).toEqual([])
})
