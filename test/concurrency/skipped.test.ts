import type pg from 'pg'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { Credits } from '../../src/credits/index.ts'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { Quota, reserveAll, settleExpired, spend } from '../../src/quota/index.ts'
import { TestClock } from '../support/clock.ts'
import { type Db, useDatabase } from '../support/databases.ts'
import { holdRows, untilWaiting } from '../support/locks.ts'
import { times } from '../support/runs.ts'

// A call that comes again finds the row of its name, or of its id, while others hold it. It is no new call.

const database = useDatabase()
const holders: pg.Client[] = []
let dbs: readonly Db[]
beforeAll(() => {
  dbs = Array.from({ length: 6 }, () => database.connect(6).db)
})
afterEach(async () => {
  for (const holder of holders.splice(0)) await holder.query('rollback')
})

function limitOn(prefix: string, db: Db | undefined = dbs[0], limit = 10): Quota {
  if (!db) throw new Error('There is no such database.')
  const limiter = Ratelimit.fixedWindow(limit, '1h')
  return new Quota({ timeout: false, db, limiter, prefix, durable: true, cleanupProbability: 0 })
}

/** Holds the rows whose prefixes end so until the answer is there, or the call waits for them. */
async function whileHeld<T>(prefix: string, call: () => Promise<T>): Promise<T> {
  const holder = await database.client()
  await holder.query('begin')
  holders.push(holder)
  const held = await holder.query(
    "select 1 from rate_limit_durable where prefix like 'drizzle-ratelimit/%/' || $1 for update",
    [prefix],
  )
  expect(held.rowCount).toBeGreaterThan(0)
  const answer = call()
  await Promise.race([answer, untilWaiting(database)])
  await holder.query('rollback')
  return answer
}

const named = { id: 'job', expires: '1h' } as const
const once = { id: 'event', for: '1h' } as const

/** A call for one limit that uses up its name or its id, and takes the whole limit. */
const calls: Readonly<Record<string, (quota: Quota) => Promise<unknown>>> = {
  'a reservation': (quota: Quota) => quota.reserve('key', { rate: 10, ...named }),
  'a call with once': (quota: Quota) => quota.limit('key', { rate: 10, once }),
  'an estimate with once': (quota: Quota) => quota.reserve('key', { rate: 10, once }),
  'a list with once': (ratelimit: Quota) => limitAll([{ ratelimit, key: 'key', rate: 10 }], { once }),
  'a list of reservations': (ratelimit: Quota) => reserveAll([{ ratelimit, key: 'key', rate: 10 }], named),
  'a cost with a name': (ratelimit: Quota) => spend([{ ratelimit, key: 'key' }], { rate: 10, ...named }),
  'a cost with once': (ratelimit: Quota) => spend([{ ratelimit, key: 'key' }], { rate: 10, once }),
}

describe.each(Object.entries(calls))('%s that comes again, and nothing is left', (name, call) => {
  test('while others hold its row', async () => {
    const prefix = `held ${name}`
    expect(await call(limitOn(prefix))).toMatchObject({ success: true })
    const again = await whileHeld(prefix, () => call(limitOn(prefix, dbs[1])))
    expect(again).toMatchObject({ success: true, repeated: true })
  })

  test('while the first one is under way', async () => {
    const prefix = `under way ${name}`
    const [first, other] = [limitOn(prefix), limitOn(prefix, dbs[1])]
    await first.limit('key', { rate: 0 })
    await first.limit('key')
    await first.limit('key', { rate: -1 })
    const holder = await holdRows(database, prefix, null, 'rate_limit_durable')
    holders.push(holder)
    const answers = [call(first), call(other)]
    await untilWaiting(database, 2)
    await holder.query('commit')
    const [one, two] = await Promise.all(answers)
    for (const answer of [one, two]) expect(answer).toMatchObject({ success: true })
    expect([one, two].filter((answer) => 'repeated' in Object(answer))).toHaveLength(1)
  })

  test('in transactions', async () => {
    const prefix = `again in ${name}`
    expect(await call(limitOn(prefix))).toMatchObject({ success: true })
    const again = await whileHeld(prefix, async () =>
      dbs[1]?.transaction((tx) => call(new Quota({ timeout: false, ...configOf(prefix), db: tx }))),
    )
    expect(again).toMatchObject({ success: true, repeated: true })
  })

  test('and without a first one it is denied, and leaves nothing', async () => {
    const prefix = `denied ${name}`
    const quota = limitOn(prefix)
    await quota.limit('key')
    expect(await call(quota)).toMatchObject({ success: false })
    await quota.limit('key', { rate: -1 })
    const answer = await call(quota)
    expect(answer).toMatchObject({ success: true })
    expect(answer).not.toHaveProperty('repeated')
  })
})

function configOf(prefix: string) {
  return { limiter: Ratelimit.fixedWindow(10, '1h'), prefix, durable: true, cleanupProbability: 0 }
}

test.each(['reserveAll', 'spend'] as const)(
  '%s over two limits comes again while others hold one of its rows',
  async (how) => {
    const prefixes = [`a two ${how}`, `b two ${how}`]
    const requestsOn = (db: Db | undefined) =>
      prefixes.map((prefix) => ({ ratelimit: limitOn(prefix, db), key: 'key' }))
    const call = (db: Db | undefined): Promise<unknown> =>
      how === 'spend' ? spend(requestsOn(db), { rate: 15, ...named }) : reserveAll(requestsOn(db), named)
    expect(await call(dbs[0])).toMatchObject({ success: true })
    for (const prefix of prefixes) {
      const again = await whileHeld(prefix, () => call(dbs[1]))
      expect(again).toMatchObject({ success: true, repeated: true })
    }
  },
)

test('many calls that share a statement come again while others hold some of their rows', async () => {
  const prefix = 'many'
  const [first, other] = [limitOn(prefix), limitOn(prefix, dbs[1])]
  const names = Array.from({ length: 20 }, (_, i) => ({ key: `key ${i % 5}`, id: `job ${i}` }))
  const all = (quota: Quota) =>
    Promise.all(names.map(({ key, id }) => quota.reserve(key, { rate: 2, id, expires: '1h' })))
  for (const key of new Set(names.map(({ key }) => key))) await first.limit(key, { rate: 2 })
  expect((await all(first)).every(({ success }) => success)).toBe(true)
  for (const answer of await whileHeld(prefix, () => all(other)))
    expect(answer).toMatchObject({ success: true, repeated: true })
})

test('credits: a call with once that takes the rest comes again while others hold its row', async () => {
  const [one, two] = dbs.map(
    (db) => new Credits({ timeout: false, db, dated: true, prefix: 'credits', durable: true }),
  ) as [Credits<true>, Credits<true>]
  const list = (credits: Credits<true>, db: Db | undefined) =>
    limitAll(
      [
        { ratelimit: credits, key: 'key', rate: 5 },
        { ratelimit: limitOn('next to credits', db), key: 'key' },
      ],
      { once: { id: 'list', for: '1h' } },
    )
  await one.grant('key', 15, { id: 'grant' })
  await one.limit('key', { rate: 10, once })
  await list(one, dbs[0])
  expect(await whileHeld('credits', () => two.limit('key', { rate: 10, once }))).toMatchObject({
    success: true,
    repeated: true,
  })
  expect(await whileHeld('credits', () => list(two, dbs[1]))).toMatchObject({ success: true, repeated: true })
})

test.each([1, 2])(
  'settleExpired of %i limits looks while calls come again: none is denied',
  async (count) => {
    const clock = new TestClock()
    const prefixes = Array.from({ length: count }, (_, i) => `${i} swept ${count}`)
    const on = (db: Db) =>
      prefixes.map((prefix) => new Quota({ timeout: false, ...configOf(prefix), db, clock: clock.now }))
    const all = dbs.map((db) => ({ db, limits: on(db) }))
    const names = Array.from({ length: 10 }, (_, i) => `job ${i}`)
    const reserve = (limits: readonly Quota[], id: string) =>
      reserveAll(
        limits.map((ratelimit) => ({ ratelimit, key: 'key' })),
        { id, expires: '1m' },
      )
    for (const id of names) await reserve(all[0]?.limits ?? [], id)
    clock.advance(60_000)
    let isOver = false
    const settled = all.slice(0, 2).map(async ({ db, limits }) => {
      while (!isOver) {
        for (const ratelimit of limits) {
          await db
            .transaction(async (tx) => {
              await settleExpired(ratelimit, { tx, as: 'charge' })
              tx.rollback()
            })
            .catch(() => {})
        }
      }
    })
    await Promise.all(
      all.slice(2).map(async ({ limits }) => {
        for (let i = 0; i < times(60); i++) {
          const answer = await reserve(limits, names[i % names.length] as string)
          expect(answer).toMatchObject({ success: true, repeated: true })
        }
      }),
    ).finally(() => {
      isOver = true
    })
    await Promise.all(settled)
  },
)
