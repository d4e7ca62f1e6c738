import { sql } from 'drizzle-orm'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type Database, limitAll, Ratelimit } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(5, '1m')

async function rowsOf(prefix: string): Promise<unknown[]> {
  return database.rows(`select key from rate_limit_ephemeral where prefix = '${prefix}' order by key`)
}

async function fill(ratelimit: Ratelimit, keys: number): Promise<void> {
  await Promise.all(Array.from({ length: keys }, (_, i) => ratelimit.limit(`key ${i}`)))
}

test("deletes this prefix's expired rows, however many, and says how many", async () => {
  const clock = new TestClock()
  const options = { db: database.db, limiter, clock: clock.now, cleanupProbability: 0 }
  const ratelimit = new Ratelimit({ ...options, prefix: 'mine' })
  await fill(ratelimit, 250)
  await fill(new Ratelimit({ ...options, prefix: 'other' }), 3)
  clock.advance(70_000)
  await ratelimit.limit('new')
  expect(await ratelimit.cleanup()).toBe(250)
  expect(await rowsOf('mine')).toEqual([{ key: 'new' }])
  expect(await rowsOf('other')).toHaveLength(3)
  expect(await ratelimit.cleanup()).toBe(0)
})

test('without an injected clock, rows expire by the clock of the database', async () => {
  const past = new TestClock(Date.UTC(2020, 0, 1))
  const options = { db: database.db, limiter, prefix: 'database clock', cleanupProbability: 0 }
  await new Ratelimit({ ...options, clock: past.now }).limit('old')
  const ratelimit = new Ratelimit(options)
  await ratelimit.limit('new')
  expect(await ratelimit.cleanup()).toBe(1)
  expect(await rowsOf('database clock')).toEqual([{ key: 'new' }])
})

test('a sweep begins with the rows that expired first, whatever their keys are', async () => {
  const clock = new TestClock()
  const options = { limiter, clock: clock.now, prefix: 'first' }
  const quiet = new Ratelimit({ ...options, db: database.db, cleanupProbability: 0 })
  const names = ['z', 'a', 'm']
  // 60 that expire first, and then twice as many.
  for (const name of names) {
    await Promise.all(Array.from({ length: 60 }, (_, i) => quiet.limit(`${name} ${i}`)))
    clock.advance(20_000)
  }
  // Touched again, they stand behind the others in the table.
  await database.rows(
    `update rate_limit_ephemeral set count = count where prefix = 'first' and key like 'z%'`,
  )
  clock.advance(70_000)
  // By the index they would come in that order by chance.
  const db = hasServer() ? database.connect(1).db : database.db
  for (const scan of ['indexscan', 'bitmapscan']) await db.execute(sql.raw(`set enable_${scan} = off`))
  const ratelimit = new Ratelimit({ ...options, db, cleanupProbability: 1 })
  await ratelimit.limit('new', { rate: 0 })
  await vi.waitFor(async () => expect(await rowsOf('first')).toHaveLength(80), PATIENTLY)
  for (const scan of ['indexscan', 'bitmapscan']) await db.execute(sql.raw(`reset enable_${scan}`))
  const left = (await rowsOf('first')).map((row) => String(Reflect.get(Object(row), 'key'))[0])
  expect(names.map((name) => left.filter((each) => each === name).length)).toEqual([0, 20, 60])
})

test('a sweep after a call goes by the injected clock', async () => {
  const past = new TestClock(Date.UTC(2020, 0, 1))
  const sent: PromiseLike<unknown>[] = []
  const { db: watched } = watch(database.db)
  const db: Database = {
    ...watched,
    execute: (query) => {
      const answer = watched.execute(query)
      sent.push(answer)
      return answer
    },
  }
  const options = { db, limiter, prefix: 'past', clock: past.now }
  const ratelimit = new Ratelimit({ ...options, cleanupProbability: 1 })
  for (const key of ['one', 'other']) {
    await ratelimit.limit(key)
    await Promise.allSettled(sent)
    await limitAll([{ ratelimit, key }])
    await Promise.allSettled(sent)
  }
  expect(await rowsOf('past')).toEqual([{ key: 'one' }, { key: 'other' }])
  past.advance(70_000)
  const sweeps: Promise<unknown>[] = []
  const waitUntil = (sweep: Promise<unknown>) => sweeps.push(sweep)
  const later = new Ratelimit({ ...options, cleanupProbability: 1, waitUntil })
  await limitAll([{ ratelimit: later, key: 'new' }])
  await Promise.all(sweeps)
  expect(await rowsOf('past')).toEqual([{ key: 'new' }])
})

describe('cleanupProbability', () => {
  const isSweep = (text: string) => text.includes('delete from')
  afterEach(() => void vi.restoreAllMocks())

  /** A limiter over 150 expired rows, and what it sends to the database. */
  async function overExpired(
    prefix: string,
    cleanupProbability?: number,
    before?: (text: string) => unknown,
  ) {
    const clock = new TestClock()
    const options = { limiter, prefix, clock: clock.now }
    await fill(new Ratelimit({ ...options, db: database.db, cleanupProbability: 0 }), 150)
    clock.advance(70_000)
    const watched = watch(database.db, before)
    const own = cleanupProbability === undefined ? {} : { cleanupProbability }
    return { ratelimit: new Ratelimit({ ...options, ...own, db: watched.db }), ...watched }
  }

  test('1 has a call sweep afterwards, a hundred rows at most', async () => {
    const { ratelimit, statements } = await overExpired('always', 1)
    await ratelimit.limit('new')
    await vi.waitFor(async () => expect(await rowsOf('always')).toHaveLength(51), PATIENTLY)
    expect(statements.filter(isSweep)).toHaveLength(1)
  })

  test('0: never', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0)
    const { ratelimit, statements } = await overExpired('never', 0)
    for (let i = 0; i < 5; i++) await ratelimit.limit('new')
    expect(statements.filter(isSweep)).toEqual([])
  })

  test.each([
    [0.0999, 1],
    [0.1, 0],
  ])('by default one call in ten: with a draw of %s, %s', async (draw, sweeps) => {
    const { ratelimit, statements } = await overExpired(`default ${draw}`)
    vi.spyOn(Math, 'random').mockReturnValue(draw)
    await ratelimit.limit('new')
    await ratelimit.limit('new')
    expect(statements.filter(isSweep).length).toBeGreaterThanOrEqual(sweeps)
    expect(statements.filter(isSweep).length).toBeLessThanOrEqual(sweeps * 2)
  })

  test('a sweep that fails or hangs changes no answer and delays none', async () => {
    const hangs = new Promise(() => {})
    const fails = await overExpired('fails', 1, (text) => isSweep(text) && Promise.reject(new Error('no')))
    const stuck = await overExpired('hangs', 1, (text) => isSweep(text) && hangs)
    for (const { ratelimit, statements } of [fails, stuck]) {
      const answers = []
      for (let i = 0; i < 7; i++) answers.push((await ratelimit.limit('new')).success)
      expect(answers).toEqual([true, true, true, true, true, false, false])
      expect(statements.filter(isSweep).length).toBeGreaterThan(0)
    }
    // One that hangs is not joined by others.
    expect(stuck.statements.filter(isSweep)).toHaveLength(1)
  })

  test('after a sweep of fewer than a hundred rows no call sweeps for a moment', async () => {
    const { ratelimit, statements } = await overExpired('busy', 1)
    let monotonic = 1000
    vi.spyOn(performance, 'now').mockImplementation(() => monotonic)
    // A call sweeps only once the sweep before it has ended, whenever that is.
    const callUntil = (ended: () => unknown) =>
      vi.waitFor(async () => {
        await ratelimit.limit('new', { rate: 0 })
        await ended()
      }, PATIENTLY)
    await callUntil(async () => expect(await rowsOf('busy')).toHaveLength(0))
    for (let i = 0; i < 20; i++) await ratelimit.limit('new', { rate: 0 })
    // Two for the 150 rows.
    expect(statements.filter(isSweep)).toHaveLength(2)
    monotonic += 50
    await callUntil(() => expect(statements.filter(isSweep)).toHaveLength(3))
  })

  test('in a transaction no call sweeps', async () => {
    await database.db.transaction(async (tx) => {
      const { db, statements } = watch(tx)
      const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'joined', cleanupProbability: 1 })
      await ratelimit.limit('key', { tx: db })
      expect(statements).toHaveLength(2)
      expect(statements.filter(isSweep)).toEqual([])
    })
  })
})
