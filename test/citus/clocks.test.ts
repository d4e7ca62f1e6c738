import { block, lockout } from 'drizzle-ratelimit/lockout'
import { prefetch } from 'drizzle-ratelimit/prefetch'
import { schedule } from 'drizzle-ratelimit/schedule'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { calendarWindow } from '../../src/calendar/index.ts'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { ID_PREFIX } from '../../src/kernel/sql/own-prefixes.ts'
import { closePeriods, Quota } from '../../src/quota/index.ts'
import { CITUS_URL, CITUS_WORKERS, useLayout } from './layout.ts'

// What writes a row reads the clock of the row's own server, whichever server it is sent to.

const HOUR_MS = 3_600_000
const ENTRIES = Object.entries({
  'by the coordinator': CITUS_URL,
  'by a worker': CITUS_WORKERS[0],
  'by the worker that is ahead': CITUS_WORKERS[1],
})
const KEYS = Array.from({ length: 16 }, (_, i) => `key ${i}`)
const IDS = 'about its id'

describe.skipIf(!CITUS_URL || !CITUS_WORKERS[1])('needs CITUS_URL and CITUS_WORKERS: the clocks of', () => {
  const laid = useLayout(8)
  const { tables, use } = laid
  let isAhead = false

  const timeOf = async (url: string | undefined) =>
    Number(
      (await laid.rows('select floor(extract(epoch from clock_timestamp()) * 1000) as at', url))[0]?.['at'],
    )

  beforeAll(async () => {
    isAhead = (await timeOf(CITUS_WORKERS[1])) - (await timeOf(CITUS_URL)) > HOUR_MS / 2
  })
  beforeEach(({ skip }) => skip(!isAhead, 'needs the second worker an hour ahead: CITUS_AHEAD=+1h'))

  /** How long until each row expires, by the clock of its server. */
  const leftOf = async (prefix: string) =>
    (
      await laid.rows(
        ['ephemeral', 'durable']
          .map(
            (kind) => `select key, extract(epoch from expires_at - clock_timestamp()) * 1000 as left
              from ${laid.name}.rate_limit_${kind} where prefix = '${prefix}'`,
          )
          .join(' union all '),
      )
    ).map((row) => Number(row['left']))

  const limiters = {
    'token bucket': Ratelimit.tokenBucket(20, '10m', 20),
    gcra: Ratelimit.gcra(20, '10m', { burst: 20 }),
    'fixed window': Ratelimit.fixedWindow(20, '10m'),
    'sliding window': Ratelimit.slidingWindow(20, '10m'),
  }

  describe.each(ENTRIES)('rows that are written %s', (entry, url) => {
    const db = laid.at(url)
    const optionsOf = (prefix: string) => ({
      ...{ db, tables, use, prefix: `${entry} ${prefix}` },
    })
    /** Rows of both workers last as long as they should. */
    const expectOwnClock = async (prefix: string, rows = KEYS.length, before = '') => {
      const left = await leftOf(`${before}${entry} ${prefix}`)
      expect(left.length).toBe(rows)
      for (const each of left) {
        expect(each).toBeGreaterThan(0)
        expect(each).toBeLessThan(HOUR_MS / 2)
      }
    }

    test.each(Object.entries(limiters))('limit, %s', async (name, limiter) => {
      const one = new Ratelimit({ ...optionsOf(name), limiter })
      for (let times = 0; times < 2; times++)
        await Promise.all(KEYS.map((key) => one.limit(key, { rate: 3 })))
      await expectOwnClock(name)
    })

    test('block, and schedule', async () => {
      const logins = new Ratelimit({ ...optionsOf('block'), limiter: lockout(3, '10m', { block: '5m' }) })
      const line = new Ratelimit({ ...optionsOf('line'), limiter: limiters.gcra })
      await Promise.all(KEYS.map((key) => block(logins, key, '5m')))
      await Promise.all(KEYS.map((key) => schedule(line, key, { within: '1m' })))
      await expectOwnClock('block')
      await expectOwnClock('line')
    })

    test('a list, and one with an id', async () => {
      const one = new Ratelimit({ ...optionsOf('list'), limiter: limiters['fixed window'] })
      const other = new Ratelimit({ ...optionsOf('other list'), limiter: limiters.gcra, durable: true })
      const requests = KEYS.map((key, place) => ({ ratelimit: place % 2 ? one : other, key }))
      await limitAll(requests)
      await limitAll(requests, { once: { id: IDS, for: '10m' } })
      await Promise.all(KEYS.map((key) => one.limit(key, { once: { id: `${IDS} ${key}`, for: '10m' } })))
      await expectOwnClock('list')
      await expectOwnClock('other list', KEYS.length / 2)
      await expectOwnClock('list', KEYS.length, ID_PREFIX)
    })

    test('reserve, commit and prefetch', async () => {
      const quota = new Ratelimit({ ...optionsOf('quota'), limiter: limiters['fixed window'], durable: true })
      const prefetching = new Ratelimit({
        ...optionsOf('prefetch'),
        limiter: limiters['fixed window'],
        use: [...laid.use, prefetch({ tokens: 5, for: '1s' })],
      })
      for (const key of KEYS) {
        const reserved = await quota.reserve(key, { rate: 5 })
        if (reserved.success) await reserved.commit(2)
        await prefetching.limit(key)
      }
      await prefetching.close()
      await expectOwnClock('quota')
      await expectOwnClock('prefetch')
    })

    test('changePlan, of known keys and new ones', async () => {
      const quota = new Quota({
        ...optionsOf('plan'),
        limiter: limiters['fixed window'],
        durable: true,
        keepEnded: true,
      })
      await Promise.all(KEYS.slice(8).map((key) => quota.limit(key)))
      const to = Ratelimit.fixedWindow(50, '20m')
      const ended = await Promise.all(KEYS.map((key) => quota.changePlan(key, { to })))
      expect(ended.map((each) => each?.used)).toEqual(KEYS.map((_, place) => (place < 8 ? undefined : 1)))
      expect(ended.every((each) => each === undefined || each.end - each.start < HOUR_MS / 6)).toBe(true)
      await expectOwnClock('plan')
    })

    test('the rows that closePeriods begins with a rollover', async () => {
      const now = await timeOf(CITUS_URL)
      // By the clock of one worker, the day has begun. By the others, it begins in half an hour.
      const starts = now + HOUR_MS / 2
      const limiter = calendarWindow(20, 'day', {
        anchor: new Date(starts - 400 * 24 * HOUR_MS),
        rollover: { max: 5 },
      })
      const options = { ...optionsOf('rollover'), limiter, durable: true, keepEnded: true } as const
      const before = new Quota({ ...options, clock: () => new Date(starts - 36 * HOUR_MS) })
      await Promise.all(KEYS.map((key) => before.limit(key, { rate: 17 })))
      const { prefix } = options
      await db.transaction((tx) => closePeriods(new Quota(options), { tx }))
      const begun = await laid.rows(
        `select extract(epoch from window_start) * 1000 as start, extract(epoch from clock_timestamp()) * 1000 as at
          from ${laid.name}.rate_limit_durable where prefix = '${prefix}'`,
      )
      expect(begun).toHaveLength(KEYS.length)
      for (const { start, at } of begun) {
        const day = Number(at) < starts ? starts - 24 * HOUR_MS : starts
        expect(Number(start)).toBe(day)
      }
      expect(new Set(begun.map(({ start }) => Number(start))).size).toBe(2)
    })
  })
})
