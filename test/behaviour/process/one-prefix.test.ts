import { pgSchema } from 'drizzle-orm/pg-core'
import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar.ts'
import {
  type Database,
  type Limiter,
  Ratelimit,
  type RatelimitConfig,
  rateLimitTables,
} from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { useWarnings } from '../../support/warnings.ts'
import { quotaOn } from '../quotas/ten.ts'

// Two limiters of one prefix that begin each other's rows again are warned of.

const database = useDatabase()
const warn = useWarnings()

let prefixes = 0
const newPrefix = () => `one prefix ${prefixes++}`

function made(prefix: string, limiter: Limiter, options: object = {}): Ratelimit {
  return new Ratelimit({ db: database.db, limiter, prefix, ...options } as RatelimitConfig)
}

const { fixedWindow, slidingWindow, tokenBucket, gcra, balance, unlimited } = Ratelimit
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
])('warns once: %s', (_, one, other) => {
  const prefix = newPrefix()
  made(prefix, one)
  expect(warn).not.toHaveBeenCalled()
  made(prefix, other)
  made(prefix, other)
  made(prefix, one)
  expect(warn.mock.calls).toEqual([
    [
      expect.stringMatching(
        `^drizzle-ratelimit SHARED_PREFIX: .*"${prefix}".*docs/errors.md#shared_prefix.$`,
      ),
    ],
  ])
  made(`${prefix} again`, one)
  made(`${prefix} again`, other)
  expect(warn).toHaveBeenCalledTimes(2)
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
  ["onOtherPlan: 'begin anew'", minute, slidingWindow(10, '1m'), () => ({ onOtherPlan: 'begin anew' })],
  ['the other table', minute, slidingWindow(10, '1m'), () => ({ durable: true })],
  [
    'tables of your own',
    minute,
    slidingWindow(10, '1m'),
    () => ({ tables: rateLimitTables({ schema: pgSchema('own') }) }),
  ],
  ['another database', minute, slidingWindow(10, '1m'), () => ({ db: clone() })],
])('does not warn: %s', (_, one, other, options = () => ({})) => {
  const prefix = newPrefix()
  made(prefix, one)
  made(prefix, other, options())
  expect(warn).not.toHaveBeenCalled()
})

test('does not warn: a limit of a single call', async () => {
  const { quota } = quotaOn(database, minute)
  await quota.limit('key', { limiter: slidingWindow(10, '1m') })
  expect(warn).not.toHaveBeenCalled()
})

test('prefixes from user input fill neither memory nor logs', () => {
  const db = clone()
  for (let i = 0; i < 1_010; i++) made(`made up ${i}`, minute, { db })
  made('made up 1009', slidingWindow(10, '1m'), { db })
  expect(warn).not.toHaveBeenCalled()
  for (let i = 0; i < 120; i++) made(`made up ${i}`, slidingWindow(10, '1m'), { db })
  expect(warn).toHaveBeenCalledTimes(100)
})
