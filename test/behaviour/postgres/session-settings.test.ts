import { sql } from 'drizzle-orm'
import { lockout } from 'drizzle-ratelimit/lockout'
import { usage } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import { describe, expect, onTestFinished, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { type Limiter, limitAll, Ratelimit } from '../../../src/index.ts'
import { closePeriods, openReservations, Quota } from '../../../src/quota/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { allowed } from '../../support/allowed.ts'
import { TestClock } from '../../support/clock.ts'
import { type Db, hasServer, useDatabase } from '../../support/databases.ts'

// An answer is as exact as the decision, whatever the settings of the session are.

const database = useDatabase()

/** Settings that change the text of values. With `extra_float_digits = 0`, numbers have 15 digits. */
const SETTINGS = {
  extra_float_digits: '-15',
  DateStyle: 'SQL, DMY',
  TimeZone: 'America/St_Johns',
  IntervalStyle: 'sql_standard',
  bytea_output: 'escape',
  standard_conforming_strings: 'off',
  lc_messages: 'POSIX',
  lc_monetary: 'POSIX',
  lc_numeric: 'POSIX',
  lc_time: 'POSIX',
}

const MOST = Number.MAX_SAFE_INTEGER
const WHOLE = [1, MOST - 3000, 7, 0, MOST, 1003]
const PARTS = [1 / 3, 0.1, 5 / 7, 0, 1e-6, 1 / 3]

/** Limits with 16 digits, with fractions, and with both, and what is charged of them. */
const LIMITS: Record<string, { limiter: Limiter; rates: readonly number[] }> = {
  'fixed window': { limiter: Ratelimit.fixedWindow(MOST, '1m'), rates: WHOLE },
  'sliding window': { limiter: Ratelimit.slidingWindow(MOST, '1m'), rates: WHOLE },
  'calendar window': { limiter: calendarWindow(MOST, 'minute'), rates: WHOLE },
  lockout: { limiter: lockout(2, '1m', { block: '1m' }), rates: [1, 1, 1] },
  'bucket of whole units': { limiter: Ratelimit.tokenBucket(MOST / 7, '7s', MOST), rates: WHOLE },
  'interval refill': {
    limiter: Ratelimit.tokenBucket(1e5 / 3, '7s', 1_234_567.89),
    rates: [...PARTS, 1_200_000],
  },
  'continuous refill': {
    limiter: Ratelimit.tokenBucket(1e-3 / 3, '7s', 1234.56789, { refill: 'continuous' }),
    rates: [...PARTS, 1_234, 2],
  },
  gcra: { limiter: Ratelimit.gcra(3, '7s', { burst: 7 }), rates: [...PARTS, 6, 2] },
}

/** The results of the same calls without and with the settings. */
async function inBoth<T>(calls: (db: Db, prefix: string) => Promise<T>): Promise<{ plain: T; changed: T }> {
  const name = expect.getState().currentTestName
  const db = hasServer() ? database.connect(1).db : database.db
  const plain = await calls(db, `plain ${name}`)
  for (const [setting, value] of Object.entries(SETTINGS)) {
    await db.execute(sql.raw(`set ${setting} = '${value}'`))
    onTestFinished(async () => void (await db.execute(sql.raw(`reset ${setting}`))))
  }
  return { plain, changed: await calls(db, `changed ${name}`) }
}

describe.each(Object.entries(LIMITS))('%s', (_, { limiter, rates }) => {
  const joins = (db: Db, joined: boolean) =>
    joined
      ? <T>(call: (options: { tx?: Db }) => Promise<T>) => db.transaction((tx) => call({ tx: tx as Db }))
      : <T>(call: (options: { tx?: Db }) => Promise<T>) => call({})

  test.each([false, true])('answers are the same; joined: %s', async (joined) => {
    const answers = await inBoth(async (db, prefix) => {
      const call = joins(db, joined)
      const clock = new TestClock()
      const config = { db, prefix, clock: clock.now, cleanupProbability: 0, durable: true } as const
      const ratelimit = new Ratelimit({ ...config, limiter })
      const beside = new Ratelimit({
        ...config,
        prefix: `${prefix} beside`,
        limiter: Ratelimit.fixedWindow(MOST, '1m'),
      })
      const all: unknown[] = []
      for (const rate of rates) {
        all.push(await call((options) => ratelimit.limit('key', { rate, ...options })))
        all.push(await call((options) => ratelimit.getRemaining('key', options)))
        clock.advance(334)
        const both = [
          { ratelimit, key: 'listed', rate },
          { ratelimit: beside, key: 'listed', rate: Math.ceil(rate) },
        ]
        all.push((await call((options) => limitAll(both, options))).results)
        all.push(await call((options) => ratelimit.getRemainingAll(['key', 'listed'], options)))
      }
      all.push(await usage({ db, prefix, limiter, durable: true, clock: clock.now }))
      all.push(await call((options) => ratelimit.limit('key', { rate: -1, ...options })))
      clock.advance(60_000)
      all.push(await call((options) => ratelimit.limit('key', options)))
      return all
    })
    expect(answers.changed).toEqual(answers.plain)
  })
})

test('a refund next to promised starts', async () => {
  const answers = await inBoth(async (db, prefix) => {
    const clock = new TestClock()
    const ratelimit = new Ratelimit({
      ...{ db, prefix, clock: clock.now, cleanupProbability: 0 },
      limiter: Ratelimit.gcra(3, '1s', { burst: 1 }),
    })
    const all: unknown[] = [await ratelimit.limit('key')]
    for (let i = 0; i < 3; i++) {
      const { success, ...scheduled } = await schedule(ratelimit, 'key', { within: 60_000 })
      all.push(success, JSON.stringify(scheduled))
      all.push(await ratelimit.limit('key', { rate: -1 }), await ratelimit.getRemaining('key'))
      clock.advance(7)
    }
    return all
  })
  expect(answers.changed).toEqual(answers.plain)
})

test('a closed period', async () => {
  const { plain, changed } = await inBoth(async (db, prefix) => {
    const clock = new TestClock()
    const limiter = Ratelimit.fixedWindow(MOST, '1m')
    const quota = new Quota({ db, prefix, limiter, durable: true, keepEnded: true, clock: clock.now })
    await quota.limit('closed', { rate: MOST - 2 })
    await quota.limit('ended', { rate: MOST - 4 })
    clock.advance(61_000)
    const ended = await quota.limit('ended')
    return [ended, await db.transaction((tx) => closePeriods(quota, { tx }))]
  })
  expect(changed).toEqual(plain)
  expect(changed).toMatchObject([{ ended: { used: MOST - 4 } }, [{ key: 'closed', used: MOST - 2 }]])
})

test('an estimate with a name, open and settled', async () => {
  const { plain, changed } = await inBoth(async (db, prefix) => {
    const clock = new TestClock()
    const config = { db, prefix, clock: clock.now, cleanupProbability: 0 }
    const quota = new Quota({ ...config, limiter: Ratelimit.fixedWindow(MOST, '1m') })
    await quota.reserve('key', { rate: MOST - 8, id: 'job', expires: '10s' })
    const open = await openReservations(quota)
    return [open, await quota.settle({ key: 'key', id: 'job' }, MOST - 10), await quota.getRemaining('key')]
  })
  expect(changed).toEqual(plain)
  expect(changed).toMatchObject([[{ rate: MOST - 8 }], { returned: 2 }, { remaining: 10 }])
})

test('credits', async () => {
  const { plain, changed } = await inBoth(async (db, prefix) => {
    const clock = new TestClock()
    const credits = new Credits({ db, prefix, dated: true, durable: true, clock: clock.now })
    const granted = await credits.grant('key', 2 ** 52 - 1, { id: 'one', expires: new Date(clock.ms + 1e9) })
    const answers = [granted, await credits.limit('key'), await credits.getRemaining('key')]
    await credits.reserve('key', { rate: 2 ** 51 + 7, id: 'job', expires: '10s' })
    await credits.settle({ key: 'key', id: 'job' }, 2 ** 51 + 3)
    return [...answers, await credits.getRemaining('key'), await credits.grants('key')]
  })
  expect(changed).toEqual(plain)
  expect(changed).toMatchObject([
    { remaining: 2 ** 52 - 1 },
    { remaining: 2 ** 52 - 2 },
    { remaining: 2 ** 52 - 2 },
    { remaining: 2 ** 51 - 5 },
    [{ left: 2 ** 51 - 5 }],
  ])
})

test('a slot that is taken again within a millisecond is released', async () => {
  const { plain, changed } = await inBoth(async (db, prefix) => {
    const clock = new TestClock()
    const jobs = new Semaphore({ db, prefix, limit: 1, lease: '10s', clock: clock.now })
    const fences: number[] = []
    for (let i = 0; i < 3; i++) {
      const lease = allowed(await jobs.acquire('key'))
      fences.push(lease.fence)
      await lease.release()
    }
    return fences
  })
  expect(changed).toEqual(plain)
})
