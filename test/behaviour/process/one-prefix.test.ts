import { pgSchema } from 'drizzle-orm/pg-core'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { balance } from '../../../src/credits/balance.ts'
import {
  type Database,
  type Limiter,
  limitAll,
  Ratelimit,
  type RatelimitConfig,
  rateLimitTables,
} from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { quotaOn } from '../../support/ten.ts'
import { useWarnings } from '../../support/warnings.ts'

// Two limiters of one prefix that begin each other's rows again are warned of.

const database = useDatabase()
const warn = useWarnings()

let prefixes = 0
const newPrefix = () => `one prefix ${prefixes++}`

function made(prefix: string, limiter: Limiter, options: object = {}): Ratelimit {
  return new Ratelimit({ db: database.db, limiter, prefix, ...options } as RatelimitConfig)
}

/** Uses each of them, one after the other. */
async function use(...limiters: readonly Ratelimit[]): Promise<void> {
  for (const each of limiters) await each.getRemaining('key')
}

const { fixedWindow, slidingWindow, tokenBucket, gcra, unlimited } = Ratelimit
const minute = fixedWindow(10, '1m')

test.each<[string, Limiter, Limiter]>([
  ['windows of two algorithms', minute, slidingWindow(10, '1m')],
  ['windows of different lengths', minute, fixedWindow(10, '1h')],
  ['sliding windows of different lengths', slidingWindow(10, '1m'), slidingWindow(10, '2m')],
  ['a window and a bucket', minute, tokenBucket(10, '1m', 10)],
  ['two kinds of buckets', gcra(10, '1m'), tokenBucket(10, '1m', 10)],
  ['a balance and a bucket', balance(), tokenBucket(10, '1m', 10)],
  ['a calendar and a window', calendarWindow(10, 'minute'), minute],
  ['two periods of the calendar', calendarWindow(10, 'month'), calendarWindow(10, 'year')],
  ['two zones', calendarWindow(10, 'day'), calendarWindow(10, 'day', { timeZone: 'Asia/Tokyo' })],
  ['two anchors', calendarWindow(10, 'day'), calendarWindow(10, 'day', { anchor: new Date(0) })],
])('warns once, when both are in use: %s', async (_, one, other) => {
  const prefix = newPrefix()
  const both = [made(prefix, one), made(prefix, other)]
  await use(...both)
  expect(warn).not.toHaveBeenCalled()
  await use(...both, ...both)
  expect(warn.mock.calls).toEqual([
    [
      expect.stringMatching(
        `^drizzle-ratelimit SHARED_PREFIX: .*"${prefix}".*docs/errors.md#shared_prefix.$`,
      ),
    ],
  ])
  const again = [made(`${prefix} again`, one), made(`${prefix} again`, other)]
  await use(...again, ...again)
  expect(warn).toHaveBeenCalledTimes(2)
})

test.each<[string, (...limiters: readonly Ratelimit[]) => Promise<unknown>]>([
  [
    'limit',
    async (...all) => {
      for (const each of all) await each.limit('key')
    },
  ],
  [
    'reserve',
    async (...all) => {
      for (const each of all) await each.reserve('key')
    },
  ],
  [
    'limitAll',
    async (...all) => {
      for (const ratelimit of all) await limitAll([{ ratelimit, key: 'key' }])
    },
  ],
])('warns of calls of %s', async (_, call) => {
  const prefix = newPrefix()
  const both = [made(prefix, minute), made(prefix, fixedWindow(10, '1h'))]
  await call(...both, ...both)
  expect(warn).toHaveBeenCalledTimes(1)
})

test('does not warn when a module is loaded again with an edited limit, and edited back', async () => {
  const prefix = newPrefix()
  for (const limiter of [minute, fixedWindow(10, '1h'), slidingWindow(10, '1h'), minute]) {
    const loaded = made(prefix, limiter)
    await use(loaded, loaded)
  }
  expect(warn).not.toHaveBeenCalled()
})

const clone = () => Object.create(database.db) as Database

test.each<[string, Limiter, Limiter, (() => object)?]>([
  ['the same limit', minute, minute],
  ['the same numbers', minute, fixedWindow(10, 60_000)],
  ['more tokens', minute, fixedWindow(1000, '1m')],
  [
    'so many tokens that they are counted in another way',
    slidingWindow(1, '30d'),
    slidingWindow(2 ** 52, '30d'),
  ],
  ['a larger plan', calendarWindow(10, 'month'), calendarWindow(Number.POSITIVE_INFINITY, 'month')],
  ['another refill', tokenBucket(1, '1m', 10), tokenBucket(5, '1h', 20, { refill: 'continuous' })],
  ['no limit', minute, unlimited()],
  ["onOtherPlan: 'throw'", minute, slidingWindow(10, '1m'), () => ({ onOtherPlan: 'throw' })],
  ["onOtherPlan: 'restart'", minute, slidingWindow(10, '1m'), () => ({ onOtherPlan: 'restart' })],
  ['the other table', minute, slidingWindow(10, '1m'), () => ({ durable: true })],
  [
    'tables of your own',
    minute,
    slidingWindow(10, '1m'),
    () => ({ tables: rateLimitTables({ schema: pgSchema('own') }), autoMigrate: true }),
  ],
  ['another database', minute, slidingWindow(10, '1m'), () => ({ db: clone() })],
])('does not warn: %s', async (_, one, other, options = () => ({})) => {
  const prefix = newPrefix()
  const both = [made(prefix, one), made(prefix, other, options())]
  await use(...both, ...both)
  expect(warn).not.toHaveBeenCalled()
})

test('does not warn: a limit of a single call', async () => {
  const { quota } = quotaOn(database, minute)
  await quota.limit('key', { limiter: slidingWindow(10, '1m') })
  expect(warn).not.toHaveBeenCalled()
})

test('prefixes from user input fill neither memory nor logs', async () => {
  const db = clone()
  const many = Array.from({ length: 1_010 }, (_, i) => made(`made up ${i}`, minute, { db }))
  const others = many.map((_, i) => made(`made up ${i}`, slidingWindow(10, '1m'), { db }))
  const conflict = async (i: number) => use(others[i] as Ratelimit, many[i] as Ratelimit)
  await conflict(1009)
  expect(warn).not.toHaveBeenCalled()
  for (let i = 0; i < 120; i++) await conflict(i)
  expect(warn).toHaveBeenCalledTimes(100)
})
