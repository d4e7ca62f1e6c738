import { blocks, lockout } from 'drizzle-ratelimit/lockout'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { Credits } from '../../../src/credits/index.ts'
import { Ratelimit } from '../../../src/index.ts'
import { block } from '../../../src/lockout/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'
import { browse, five, limiterOf, newPrefix, rowsIn } from './browse.ts'

const database = useDatabase()
const HOUR_MS = 3_600_000

describe('the list of limits', () => {
  test('has those with most trouble first, and their denials on one scale', async () => {
    const clock = new TestClock()
    const [much, little] = [1, 2].map(() => limiterOf(database.db, { clock: clock.now }))
    const use = undefined
    const calm = limiterOf(database.db, { use }).ratelimit
    const full = limiterOf(database.db, { use, clock: clock.now }).ratelimit
    await full.limit('user:1', { rate: 5 })
    for (let i = 0; i < 9; i++) await much?.ratelimit.limit('user:1', { rate: 5 })
    await much?.written()
    clock.advance(HOUR_MS)
    for (let i = 0; i < 3; i++) await much?.ratelimit.limit('user:2', { rate: 6 })
    await little?.ratelimit.limit('user:2', { rate: 6 })
    for (const each of [much, little]) await each?.written()
    await full.limit('user:2', { rate: 5 })
    const { text } = await browse({
      ...{ calm, full, little: little?.ratelimit as Ratelimit, much: much?.ratelimit as Ratelimit },
    }).get()
    expect(rowsIn(text).map((row) => row.slice(0, 5))).toEqual([
      ['much 5 in 1 h', '0', '3 since 10:15', '3', '11'],
      ['little 5 in 1 h', '0', '1 since 11:15', '1', '1'],
      ['full 5 in 1 h', '1', 'not counted', '', ''],
      ['calm 5 in 1 h', '0', 'not counted', '', ''],
    ])
    expect(text).toContain('the highest is 8 denials in an hour')
    const heights = [...text.matchAll(/: (\d+)<\/title>.*\n<rect x[^>]*height="([\d.]+)"/g)].map(
      ([, ...all]) => all.join(),
    )
    expect(heights.filter((each) => !each.startsWith('0'))).toEqual(['8,100', '3,37.5', '1,12.5'])
  })

  test.each<[string, readonly number[], readonly string[]]>([
    ['that goes on, since the first of its hours', [90, 31, 2], ['1 since 09:30', '0']],
    ['after an hour without any, since then', [200, 31, 4], ['1 since 10:29', '0']],
    [
      'for as long as it shows',
      Array.from({ length: 24 }, (_, hour) => 60 * hour),
      ['1 for a day or longer', '1'],
    ],
    ['that has ended, when it was in the last hour', [50, 12], ['0 last at 10:48', '0']],
    ['before that, in which hour it was', [70], ['0 last between 09:00 and 10:00', '0']],
    [
      'that began on another day, on which',
      Array.from({ length: 14 }, (_, hour) => 1 + 60 * hour),
      ['1 since 30 Jan, 21:59', '0'],
    ],
    ['that ended on another day, on which', [700], ['0 last between 30 Jan, 23:00 and 00:00', '0']],
    ['more than a day ago, nothing', [1440], ['0', '0']],
  ])('says since when it denies, and if it does not, when it did: %s', async (_, minutesAgo, cells) => {
    const clock = new TestClock(Date.UTC(2026, 0, 31, 11, 0, 30))
    const { ratelimit, written } = limiterOf(database.db, {
      clock: clock.now,
      limiter: Ratelimit.fixedWindow(0, '1h'),
    })
    const end = clock.ms
    for (const ago of minutesAgo.toSorted((one, other) => other - one)) {
      clock.ms = end - ago * 60_000
      await ratelimit.limit('user:1')
      await written()
    }
    clock.ms = end
    const { get, open } = browse({ api: ratelimit })
    expect(rowsIn((await get()).text)[0]?.slice(2, 4)).toEqual(cells)
    const [now, when] = cells[0]?.split(/ (.*)/) ?? []
    if (when === undefined) return
    const said = now === '0' ? `Not denied now, ${when}.` : `Denied ${when}.`
    for (const { text } of [await get('?limit=api'), await open('api', 'user:1')])
      expect(text).toContain(said)
  })

  test('says each rule in words', async () => {
    const { db } = database
    const rules = {
      bucket: Ratelimit.tokenBucket(5, '10s', 20),
      gcra: Ratelimit.gcra(100, '1m', { burst: 10 }),
      sliding: Ratelimit.slidingWindow(1000, '1d'),
      endless: Ratelimit.fixedWindow(Number.POSITIVE_INFINITY, '1m'),
      lockout: lockout(5, '15m', { block: '1m', factor: 2 }),
      month: calendarWindow(50, 'month'),
      none: Ratelimit.unlimited(),
      hours: Ratelimit.slidingWindow(5, '25h'),
      minute: Ratelimit.fixedWindow(5, '61s'),
      slow: Ratelimit.tokenBucket(0.01, '1s', 20),
      fast: Ratelimit.gcra(100_000, '1s'),
    }
    const clock = () => new Date('2026-03-15T12:00:00Z')
    const limiters = Object.fromEntries(
      Object.entries(rules).map(([name, limiter]) => [
        name,
        new Ratelimit({ db, limiter, prefix: newPrefix(), clock }),
      ]),
    )
    const { text } = await browse({
      ...limiters,
      plans: { ratelimit: limiterOf(db).ratelimit, limiterOf: () => five },
      dry: limiterOf(db, { dryRun: true }).ratelimit,
      jobs: new Semaphore({ db, prefix: newPrefix(), limit: 3, lease: '30s' }),
      credits: new Credits({ db, prefix: newPrefix() }),
      dated: new Credits({ db, prefix: newPrefix(), dated: true }),
    }).get()
    expect(Object.fromEntries(rowsIn(text).map(([first = '']) => first.split(/ (.*)/).slice(0, 2)))).toEqual({
      bucket: '5 every 10 s, burst 20',
      gcra: 'one every 600 ms, burst 10',
      sliding: '1,000 in any 1 d',
      endless: 'any number in 1 min',
      lockout: '5 failures in 15 min block for 1 min, then longer, up to 1 d',
      month: '50 from 1 Mar 2026, 00:00 to 1 Apr 2026, 00:00',
      none: 'no limit',
      hours: '5 in any 25 h',
      minute: '5 in 61 s',
      slow: '0.01 every 1 s, burst 20',
      fast: 'one every 0.01 ms, burst 100,000',
      plans: 'each key by its plan',
      dry: '5 in 1 h, a dry run: what it denies passes',
      jobs: '3 at once, each for 30 s unless it is extended',
      credits: 'what was granted',
      dated: 'what was granted, each grant until its end',
    })
  })

  test('says what keys hold: blocks, reservations, slots and grants', async () => {
    const { db } = database
    const { ratelimit: api } = limiterOf(db, { use: [blocks()] })
    const quota = new Quota({ db, limiter: five, prefix: newPrefix() })
    const jobs = new Semaphore({ db, prefix: newPrefix(), limit: 2, lease: '30s' })
    const dated = new Credits({ db, prefix: newPrefix(), dated: true })
    await block(api, 'user:1', '1h')
    await quota.reserve('org:1', { rate: 2, id: 'job', expires: '1h' })
    for (let i = 0; i < 2; i++) await jobs.acquire('org:1')
    await dated.grant('org:1', 10, { id: 'gift', expires: '1d' })
    await dated.grant('org:1', 10, { id: 'forever' })
    const { text } = await browse({ api, quota, jobs, dated }).get()
    const held = Object.fromEntries(rowsIn(text).map((row) => [row[0]?.split(' ')[0], [row[1], row[5]]]))
    expect(held).toEqual({
      api: ['0', 'Blocked: 1'],
      quota: ['0', 'Open reservations: 1'],
      jobs: ['1', 'Slots in use: 2'],
      dated: ['0', 'Grants that end: 1'],
    })
  })

  test('shows an outage next to limits that can be read, and what onError has answered', async () => {
    const away = Object.assign(new Error('away'), { code: 'ECONNREFUSED', syscall: 'connect' })
    const { db } = watch(database.db, () => {
      throw away
    })
    const broken = limiterOf(db, { use: undefined, onError: 'allow', timeout: '1s' }).ratelimit
    for (let i = 0; i < 6; i++) await broken.limit('user:1')
    const { text } = await browse({ calm: limiterOf(database.db).ratelimit, broken }).get()
    expect(text.indexOf('>broken<')).toBeLessThan(text.indexOf('>calm<'))
    expect(text).toContain('UNREACHABLE')
    expect(text).toContain('did not answer the last calls of this process')
    expect(text).toContain('onError has answered 6 calls')
  })

  test('says the zone of the viewer in words, and when it was read', async () => {
    const authorize = () => ({ id: 'ada', timeZone: 'Asia/Tokyo' })
    const { text } = await browse({ api: limiterOf(database.db).ratelimit }, { authorize }).get()
    expect(text).toMatch(
      /As of \d+ \w+ \d{4}, \d\d:\d\d:\d\d\. Times are in Japan Standard Time \(Asia\/Tokyo\)\./,
    )
    const unknown = browse(
      { api: limiterOf(database.db).ratelimit },
      { authorize: () => ({ id: 'ada', timeZone: 'Mars' }) },
    )
    expect(await unknown.get()).toMatchObject({ status: 400 })
  })

  test('refreshes itself if the address says so, without a script', async () => {
    const { get } = browse({ api: limiterOf(database.db).ratelimit })
    expect((await get()).text).not.toContain('http-equiv')
    expect((await get('?every=10')).text).toContain('<meta http-equiv="refresh" content="10">')
    expect((await get('?every=1')).text).not.toContain('http-equiv')
    expect((await get('?limit=api&every=60')).text).toContain('<a href="?limit=api&amp;every=10">')
  })
})
