import { sql } from 'drizzle-orm'
import { ledger } from 'drizzle-ratelimit/ledger'
import { afterEach, beforeAll, expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { createLedger, writeEntries } from '../support/ledger.ts'
import { holdRows } from '../support/locks.ts'
import {
  count,
  endBackends,
  endPools,
  expectExact,
  expectQuiet,
  limiterOn,
  newPrefix,
  type Outcome,
  openPool,
  outcomeOf,
  type Pool,
  recovers,
  SECRET,
  uncaughtBy,
  urlOf,
  usedOf,
} from './kit.ts'

const database = useDatabase()
beforeAll(() => createLedger(database))
afterEach(endPools)

async function open(max = 4): Promise<Pool> {
  const url = new URL(await urlOf(database))
  url.searchParams.set('application_name', 'victim')
  return openPool(url.href, { max })
}

const VICTIMS = `pg_stat_activity where application_name = 'victim' and datname = current_database()`

/** Ends one connection that waits for a lock, as soon as one does. */
async function killWaiting(): Promise<void> {
  const waiting = `${VICTIMS} and wait_event_type = 'Lock' limit 1`
  await expect.poll(() => endBackends(database, waiting), { timeout: 20_000 }).toBe(1)
}

test('backends are ended in a burst: granted <= used <= granted + unknown, for each key', async () => {
  const opened = await open()
  const prefix = newPrefix('ended')
  const ratelimit = limiterOn(opened, prefix)
  const outcomes = new Map(Array.from({ length: 200 }, (_, i) => [`key ${i}`, [] as Outcome[]]))
  let kills = 0
  const uncaught = await uncaughtBy(async () => {
    for (let round = 0; round < 30; round++) {
      const calls = [...outcomes].map(async ([key, told]) => told.push(await outcomeOf(ratelimit.limit(key))))
      kills += await endBackends(database, `${VICTIMS} limit 1`)
      await Promise.all(calls)
    }
  })
  expect(uncaught).toEqual([])
  expect(kills).toBeGreaterThan(10)
  for (const [key, told] of outcomes) expectExact(told, await usedOf(database, prefix, key))
  const all = new Set([...outcomes.values()].flat())
  expect(['granted', 'OUTCOME_UNKNOWN', 'UNREACHABLE']).toEqual(expect.arrayContaining([...all]))
  await recovers(() => ratelimit.limit('key 0'))
  await expectQuiet(opened)
})

test('a backend is ended while a check waits for a row: nothing is charged, and the next call goes on', async () => {
  const opened = await open()
  const prefix = newPrefix('ended')
  const ratelimit = limiterOn(opened, prefix)
  await ratelimit.limit(SECRET)
  const holder = await holdRows(database, prefix, [SECRET])
  const call = outcomeOf(ratelimit.limit(SECRET))
  await killWaiting()
  expect(await call).toBe('OUTCOME_UNKNOWN')
  await holder.query('commit')
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
  await expectQuiet(opened)
})

test('a backend is ended in limitAll: nothing is charged, and the process goes on', async () => {
  const opened = await open()
  const prefix = newPrefix('ended')
  const ratelimit = limiterOn(opened, prefix)
  for (const key of ['a', 'b']) await ratelimit.limit(key)
  const holder = await holdRows(database, prefix, ['b'])
  let outcome: Outcome | undefined
  const uncaught = await uncaughtBy(async () => {
    const call = outcomeOf(limitAll(['a', 'b'].map((key) => ({ ratelimit, key }))))
    await killWaiting()
    outcome = await call
    await holder.query('commit')
  })
  // It waits for the row by a statement that charges nothing.
  expect(outcome).toBe('UNREACHABLE')
  for (const key of ['a', 'b']) expect(await usedOf(database, prefix, key)).toBe(1)
  await recovers(() => limitAll(['a', 'b'].map((key) => ({ ratelimit, key }))))
  await expectQuiet(opened)
  expect(uncaught).toEqual([])
})

test('an idle connection is ended: the next call takes another, and charges once', async () => {
  const opened = await open(1)
  const prefix = newPrefix('ended')
  const ratelimit = limiterOn(opened, prefix)
  await ratelimit.limit(SECRET)
  const uncaught = await uncaughtBy(async () => {
    await endBackends(database, VICTIMS)
    await expect.poll(() => opened.pool.totalCount).toBe(0)
  })
  expect(uncaught).toEqual([])
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
  await expectQuiet(opened)
})

test('more callers than the limit, while backends are ended: never over it', async () => {
  const opened = await open()
  const prefix = newPrefix('ended')
  const ratelimit = limiterOn(opened, prefix)
  const outcomes: Outcome[] = []
  // What is unknown may not have been charged.
  for (let round = 0; round < 20 || count(outcomes, 'denied') === 0; round++) {
    const calls = Array.from({ length: 10 }, () => outcomeOf(ratelimit.limit(SECRET)))
    await endBackends(database, `${VICTIMS} limit 1`)
    outcomes.push(...(await Promise.all(calls)))
  }
  expectExact(outcomes, await usedOf(database, prefix, SECRET))
  expect(count(outcomes, 'denied')).toBeGreaterThan(0)
})

test('connections break while entries are written: the application has those of the charges, to the unit', async () => {
  const opened = await open()
  let batches = 0
  const prefix = newPrefix('ended')
  const ratelimit = new Ratelimit({
    ...{ db: opened.db, prefix, limiter: Ratelimit.fixedWindow(1_000_000, '1d') },
    use: [
      ledger<typeof opened.db>(async (tx, entries) => {
        const when = batches++ % 7
        if (when === 1) await tx.execute(END_OWN)
        await writeEntries(tx, entries)
        if (when === 4) await tx.execute(END_OWN)
      }),
    ],
  })
  const outcomes: Outcome[] = []
  const uncaught = await uncaughtBy(async () => {
    for (let round = 0; round < 30; round++) {
      const calls = Array.from({ length: 60 }, async (_, i) => {
        const once = { id: `${round} ${i % 40}`, for: '1d' } as const
        outcomes.push(await outcomeOf(ratelimit.limit(`key ${i % 7}`, i % 2 ? {} : { once })))
      })
      await Promise.all(calls)
    }
  })
  expect(uncaught).toEqual([])
  expect(count(outcomes, 'granted')).toBeGreaterThan(100)
  expect(count(outcomes, 'granted')).toBeLessThan(outcomes.length)
  const rows = await database.rows(
    `select key, count::float8 as used, (select sum(units) from app_ledger entry
      where entry.prefix = stored.prefix and entry.key = stored.key) as recorded
    from rate_limit_ephemeral stored where prefix = $1`,
    [prefix],
  )
  expect(rows).toHaveLength(7)
  for (const { used, recorded } of rows) expect(recorded).toBe(used)
  await recovers(() => ratelimit.limit('key 0'))
  await expectQuiet(opened)
})

const END_OWN = sql`select pg_terminate_backend(pg_backend_pid())`
