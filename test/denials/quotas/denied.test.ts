import { countDenials } from 'drizzle-ratelimit/denials'
import { type DeniedOptions, denied, usage } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import { describe, expect, test, vi } from 'vitest'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { HOUR_MS, quotaOn } from '../../support/ten.ts'
import { fakeTime, useFakeTime } from '../../support/timers.ts'
import { undone } from '../../support/undone.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
useFakeTime()

const NONE = Ratelimit.fixedWindow(0, '1h')
const TWO = Ratelimit.fixedWindow(2, '1h')

/** A limiter that counts its denials. `written` waits until all of them are written, or given up. */
function countingOn(limiter = NONE, options: object = {}) {
  const handed: Promise<unknown>[] = []
  const waitUntil = (work: Promise<unknown>) => void handed.push(work)
  const set = quotaOn(database, limiter, { use: [countDenials({ every: 1 })], waitUntil, ...options })
  const written = async () => {
    for (const each of handed) await each
  }
  const find = async (options: DeniedOptions = {}) => {
    await written()
    const found = await denied(set.quota, options)
    return Object.fromEntries(found.map(({ key, denials }) => [key, denials]))
  }
  const rowsOf = (prefix: string) =>
    database.rows('select key, count::int from rate_limit_ephemeral where prefix = $1 order by key', [prefix])
  return { ...set, handed, written, find, counts: () => rowsOf(`${set.prefix} [denied]`) }
}

async function times(count: number, call: () => Promise<unknown>): Promise<void> {
  for (let i = 0; i < count; i++) await call()
}

describe('denied', () => {
  test('lists the keys that were denied most, and no allowed call', async () => {
    const { quota, find, prefix, clock } = countingOn(TWO)
    await times(5, () => quota.limit('a'))
    await times(2, () => quota.limit('b'))
    await times(9, () => quota.limit('c'))
    await times(4, () => quota.limit('d', { rate: 2 }))
    expect(await find()).toEqual({ c: 7, a: 3, d: 3 })
    expect(await find({ top: 1 })).toEqual({ c: 7 })
    const list = await denied({ db: database.db, prefix, durable: false, clock: clock.now })
    expect(list.map(({ key }) => key)).toEqual(['c', 'a', 'd'])
    expect(await denied({ db: database.db, prefix: `${prefix}0`, durable: false })).toEqual([])
    expect(await denied({ db: database.db, prefix, durable: true })).toEqual([])
  })

  test('goes by hours, from the hour of `since`', async () => {
    const { quota, find, clock, written } = countingOn()
    clock.ms = Date.UTC(2026, 0, 31, 9, 59, 59, 999)
    await quota.limit('early')
    await written()
    clock.advance(1)
    await quota.limit('late')
    await written()
    clock.advance(HOUR_MS)
    await times(3, () => quota.limit('late'))
    expect(await find({ since: new Date('2026-01-31T09:30:00Z') })).toEqual({ late: 4, early: 1 })
    expect(await find({ since: new Date('2026-01-31T10:00:00Z') })).toEqual({ late: 4 })
    expect(await find({ since: new Date('2026-01-31T11:00:00Z') })).toEqual({ late: 3 })
    clock.advance(23 * HOUR_MS)
    expect(await find()).toEqual({ late: 4 })
    clock.advance(1 * HOUR_MS)
    expect(await find()).toEqual({ late: 3 })
  })

  test('goes by minutes in the last hour, from the minute of `since`', async () => {
    const { quota, find, clock, written } = countingOn()
    const first = Date.UTC(2026, 0, 31, 9, 20, 59, 999)
    for (const [ms, key] of [
      [first, 'early'],
      [first + 1, 'late'],
      [first + 60_001, 'later with  a space'],
    ] as const) {
      clock.ms = ms
      await quota.limit(key)
      await written()
    }
    expect(await find({ since: new Date(first) })).toEqual({ early: 1, late: 1, 'later with  a space': 1 })
    expect(await find({ since: new Date(first + 60_000) })).toEqual({ late: 1, 'later with  a space': 1 })
    expect(await find({ since: new Date(first + 60_001) })).toEqual({ 'later with  a space': 1 })
    // Up to an hour later the whole minute is there, also if others have swept.
    clock.ms = first + HOUR_MS
    await quota.limit('last')
    const since = (ms: number) => find({ since: new Date(ms) })
    expect(await since(first + 1)).toEqual({ late: 1, 'later with  a space': 1, last: 1 })
    // The hour has all of them.
    expect(await since(first)).toEqual({ early: 1, late: 1, 'later with  a space': 1, last: 1 })
  })

  test('writes nothing itself, and seeks rows by their ends, which are indexed', async () => {
    const { quota, written, prefix } = countingOn()
    await quota.limit('a')
    await written()
    const { db, statements } = watch(database.db)
    await denied({ db, prefix, durable: false })
    expect(statements.join()).not.toMatch(/insert|update|delete/)
    expect(statements.at(-1)).toContain('"expires_at" between to_timestamp')
  })

  test.each<[string, object, object?]>([
    ['no prefix', { prefix: '' }],
    ['a reserved prefix', { prefix: 'api [denied]' }],
    ['no word on the table', { durable: undefined }],
    ['a top of 0', {}, { top: 0 }],
    ['a since that is no date', {}, { since: new Date('no') }],
    ['a since that is a text', {}, { since: '1h' }],
    ['an unknown option', {}, { limiter: NONE }],
  ])('refuses %s before any SQL', async (_, rows, options = {}) => {
    const { db, statements } = watch(database.db)
    const error = await errorOf(() => denied({ db, prefix: 'p', durable: true, ...rows }, options))
    expect(error.code).toMatch(/INVALID_(PREFIX|OPTION)/)
    expect(statements).toEqual([])
  })
})

describe('every call that denies is counted', () => {
  test('limit, reserve and blockUntilReady, once each', async () => {
    const { quota, find } = countingOn()
    await quota.limit('limit')
    await quota.reserve('reserve')
    await quota.blockUntilReady('wait', 0)
    await quota.limit('look', { rate: 0 })
    await quota.getRemaining('look')
    expect(await find()).toEqual({ limit: 1, reserve: 1, wait: 1 })
  })

  test('limitAll and reserveAll, for the limits that deny', async () => {
    const tight = countingOn()
    const wide = countingOn(TWO)
    const requests = [
      { ratelimit: tight.quota, key: 'a' },
      { ratelimit: wide.quota, key: 'a' },
    ]
    await limitAll(requests)
    await reserveAll(requests)
    expect(await tight.find()).toEqual({ a: 2 })
    expect(await wide.find()).toEqual({})
  })

  test('schedule', async () => {
    const { quota, find } = countingOn(Ratelimit.tokenBucket(1, '1h', 1))
    await times(2, () => schedule(quota, 'a', { within: 0 }))
    expect(await find()).toEqual({ a: 1 })
  })

  test('spend, for all of its limits', async () => {
    const first = countingOn(TWO)
    const second = countingOn(TWO)
    const spendFor = (rate: number) =>
      spend(
        [
          { ratelimit: first.quota, key: 'a' },
          { ratelimit: second.quota, key: 'b' },
        ],
        { rate },
      )
    await spendFor(5)
    await spendFor(4)
    expect(await first.find()).toEqual({ a: 1 })
    expect(await second.find()).toEqual({ b: 1 })
  })

  test('denials from memory', async () => {
    const { db, statements } = watch(database.db)
    const { quota, find } = countingOn(NONE, { db, inMemoryBlock: true })
    await times(20, () => quota.limit('a'))
    expect(await find()).toEqual({ a: 20 })
    const takes = statements.filter((text) => text.includes('for update') && !text.includes('delete'))
    // Each limit takes and makes at most once, and each write does too.
    expect(takes.length).toBeLessThan(20)
  })

  test('those that a dry run lets pass', async () => {
    const { quota, find } = countingOn(NONE, { dryRun: true })
    expect(await quota.limit('a')).toMatchObject({ success: true })
    expect(await find()).toEqual({ a: 1 })
  })

  test('the hash of a key with hashKeys', async () => {
    const { quota, find } = countingOn(NONE, { hashKeys: true })
    await quota.limit('ada@example.com')
    const [key = ''] = Object.keys(await find())
    expect(key).toMatch(/^[0-9a-f]{64}$/)
  })

  test('but no answer of onError, because no limit has denied', async () => {
    const db = failing(() => true)
    const { quota, handed } = countingOn(NONE, { db, onError: 'deny' })
    expect(await quota.limit('a')).toMatchObject({ success: false, degraded: true })
    expect(handed).toEqual([])
  })
})

/** The database, on which some statements fail: before they are sent, or with an unknown outcome. */
function failing(fails: (text: string) => boolean, code: 'ECONNREFUSED' | 'ECONNRESET' = 'ECONNREFUSED') {
  return watch(database.db, (text) => {
    if (!fails(text)) return
    throw Object.assign(new Error(code), { code, ...(code === 'ECONNREFUSED' ? { syscall: 'connect' } : {}) })
  }).db
}

describe('in a transaction', () => {
  test('a denial counts when it is answered, and a rollback does not undo that', async () => {
    const { quota, find } = countingOn()
    await database.db.transaction((tx) => quota.limit('committed', { tx }))
    await undone(database.db, async (tx) => {
      await quota.limit('undone', { tx })
    })
    expect(await find()).toEqual({ committed: 1, undone: 1 })
  })

  test('nothing is counted by a statement of the transaction', async () => {
    const statementsOf = async ({ quota }: Pick<ReturnType<typeof quotaOn>, 'quota'>) =>
      database.db.transaction(async (tx) => {
        const { db, statements } = watch(tx)
        const joined = Object.assign(db, { rollback: () => {} })
        await quota.limit('a', { tx: joined })
        await new Promise((resolve) => setTimeout(resolve, 5))
        await quota.limit('a', { tx: joined })
        return statements
      })
    const counting = countingOn()
    const statements = await statementsOf(counting)
    expect(statements).toEqual(await statementsOf(quotaOn(database, NONE)))
    expect(await counting.find()).toEqual({ a: 2 })
  })

  test('a limiter on a transaction cannot count denials', async () => {
    await database.db.transaction(async (tx) => {
      const make = () => new Ratelimit({ db: tx, limiter: NONE, prefix: 'p', use: [countDenials()] })
      expect(make).toThrow('not a transaction')
    })
  })
})

describe('the rows', () => {
  test('are hidden from usage, and no limiter can have their prefix', async () => {
    const { quota, written, prefix, counts } = countingOn()
    await times(2, () => quota.limit('a'))
    await written()
    expect(await counts()).toEqual([
      { key: '2026-01-31T10 ', count: 2 },
      { key: '2026-01-31T10 a', count: 2 },
      { key: '2026-01-31T10:15 ', count: 2 },
      { key: '2026-01-31T10:15 a', count: 2 },
    ])
    expect(await usage({ db: database.db, prefix, limiter: NONE, durable: false })).toEqual([])
    const make = () => new Ratelimit({ db: database.db, limiter: NONE, prefix: `${prefix} [denied]` })
    expect(make).toThrow(expect.objectContaining({ code: 'INVALID_PREFIX' }))
  })

  test('of minutes are kept for an hour, whatever comes after them', async () => {
    const { quota, written, counts, clock } = countingOn()
    let most = 0
    for (let minute = 0; minute < 100; minute++) {
      await quota.limit('a')
      await written()
      clock.advance(60_000)
      if (minute % 20 === 19) most = Math.max(most, (await counts()).length)
    }
    // Of 62 minutes and the grid on which rows expire, with two rows each, and of 3 hours.
    expect(most).toBeLessThanOrEqual((62 + 8) * 2 + 6)
    expect(most).toBeGreaterThanOrEqual(60 * 2)
  })

  test('are kept for a week, and then sweep themselves', async () => {
    const { quota, written, counts, find, clock } = countingOn(NONE, {
      use: [countDenials({ every: 1, top: 500 })],
    })
    await Promise.all(Array.from({ length: 150 }, (_, i) => quota.limit(`key ${i}`)))
    await written()
    const before = (await counts()).length
    expect(before).toBeGreaterThan(100)
    clock.advance(7 * 24 * HOUR_MS - 1)
    await quota.limit('a')
    expect(Object.keys(await find({ since: new Date(0), top: 500 })).length).toBeGreaterThan(100)
    clock.advance(24 * HOUR_MS)
    await quota.limit('a')
    await written()
    expect((await counts()).map(({ key }) => key)).toEqual([
      expect.stringMatching(/^2026-02-07T10 /),
      expect.stringMatching(/^2026-02-07T10 a/),
      expect.stringMatching(/^2026-02-08T10 /),
      expect.stringMatching(/^2026-02-08T10 a/),
      expect.stringMatching(/^2026-02-08T10:15 $/),
      expect.stringMatching(/^2026-02-08T10:15 a/),
    ])
  })

  test('hold at most `top` keys of a write, and the exact sum', async () => {
    const { quota, find, counts } = countingOn(NONE, { use: [countDenials({ every: '1h', top: 2 })] })
    fakeTime()
    for (const key of ['a', 'b', 'c', 'a', 'a', 'd', 'a', 'e']) await quota.limit(key)
    vi.advanceTimersByTime(HOUR_MS)
    vi.useRealTimers()
    const found = await find()
    expect(Object.keys(found).length).toBeLessThanOrEqual(2)
    expect(found['a']).toBeGreaterThanOrEqual(4 - 8 / 3)
    expect(found['a']).toBeLessThanOrEqual(4)
    expect((await counts())[0]).toEqual({ key: '2026-01-31T10 ', count: 8 })
  })
})

describe('when counts are written', () => {
  test('every `every`, together, and never with a check', async () => {
    const { db, statements } = watch(database.db)
    const { quota, find, written } = countingOn(NONE, { db, use: [countDenials({ every: '10s' })] })
    fakeTime()
    for (let i = 0; i < 30; i++) await quota.limit(`key ${i}`)
    vi.advanceTimersByTime(9_999)
    const checks = statements.length
    vi.advanceTimersByTime(1)
    vi.useRealTimers()
    await written()
    // For hours and for minutes, one looks for the rows and one makes them, and one sweeps.
    expect(statements.slice(checks)).toHaveLength(5)
    expect(Object.keys(await find({ top: 50 }))).toHaveLength(30)
  })

  test('the next denial writes if the end of a request has ended the timer', async () => {
    const { quota, find, handed } = countingOn(NONE, { use: [countDenials({ every: '10s' })] })
    fakeTime()
    await quota.limit('a')
    vi.clearAllTimers()
    await quota.limit('a')
    expect(handed).toHaveLength(1)
    vi.advanceTimersByTime(10_000)
    await quota.limit('a')
    vi.useRealTimers()
    expect(handed).toHaveLength(2)
    await handed[1]
    handed.shift()
    expect(await find()).toEqual({ a: 3 })
  })

  test('a check does not wait for a write that hangs, and no second one begins meanwhile', async () => {
    let writes = 0
    let goOn = () => {}
    const hanging = new Promise<void>((resolve) => {
      goOn = resolve
    })
    const prefix = 'hanging'
    const { db } = watch(database.db, (text) => {
      if (!text.includes('delete')) return
      writes++
      return hanging
    })
    const { quota, find, handed } = countingOn(NONE, { db, prefix })
    await quota.limit('a')
    await vi.waitFor(() => expect(writes).toBe(1), PATIENTLY)
    await times(5, () => quota.limit('a'))
    expect(writes).toBe(1)
    goOn()
    await handed[0]
    expect(await find()).toEqual({ a: 6 })
  })
})

test('close writes what is counted, after a write that is under way', async () => {
  const { quota, find } = countingOn(NONE, { use: [countDenials({ every: '1h' })], waitUntil: undefined })
  await quota.limit('a')
  const closed = quota.close()
  await quota.limit('a')
  await Promise.all([closed, quota.close()])
  expect(await find()).toEqual({ a: 2 })
  await quota.close()
  expect(await find()).toEqual({ a: 2 })
})

test('one countDenials() in two limiters counts for each of them', async () => {
  const unhanded = { use: [countDenials({ every: '1h' })], waitUntil: undefined }
  const [first, second] = [countingOn(NONE, unhanded), countingOn(NONE, unhanded)]
  await first.quota.limit('a')
  await times(2, () => second.quota.limit('a'))
  await Promise.all([first.quota.close(), second.quota.close()])
  expect([await first.find(), await second.find()]).toEqual([{ a: 1 }, { a: 2 }])
})

test('use takes one countDenials()', () => {
  const make = () => countingOn(NONE, { use: [countDenials(), countDenials({ top: 5 })] })
  expect(make).toThrow('names of their own')
})

test('close gives up after ten seconds if the database does not answer', async () => {
  let isStuck = false
  const { db } = watch(database.db, () => isStuck && new Promise(() => {}))
  fakeTime()
  const { quota } = countingOn(NONE, { db, use: [countDenials({ every: '1h' })] })
  await quota.limit('a')
  isStuck = true
  let isClosed = false
  const closed = quota.close().then(() => {
    isClosed = true
  })
  await vi.advanceTimersByTimeAsync(9_999)
  expect(isClosed).toBe(false)
  await vi.advanceTimersByTimeAsync(1)
  await closed
})

describe('when a write fails', () => {
  /** What is found after a write that has failed, and another one. */
  async function foundAfter(code: 'ECONNREFUSED' | 'ECONNRESET', fails: (text: string) => boolean) {
    let isFailing = false
    const db = failing((text) => isFailing && fails(text), code)
    const { quota, find, handed, counts } = countingOn(NONE, { db, use: [countDenials({ every: '10s' })] })
    fakeTime()
    await quota.limit('a')
    isFailing = true
    vi.advanceTimersByTime(10_000)
    await handed[0]
    isFailing = false
    await quota.limit('b')
    vi.advanceTimersByTime(10_000)
    vi.useRealTimers()
    const found = await find()
    return { ...found, all: (await counts())[0]?.['count'] }
  }
  const isTake = (text: string) => text.includes('for update') && !text.includes('delete')

  test.each<[string, (text: string) => boolean]>([
    ['the clock', (text) => !text.includes('for update')],
    ['the rows', isTake],
    ['everything', () => true],
  ])('counts that were certainly not written are written later: %s', async (_, fails) => {
    expect(await foundAfter('ECONNREFUSED', fails)).toEqual({ a: 1, b: 1, all: 2 })
  })

  test('counts that may have been written are dropped, so that none is too high', async () => {
    expect(await foundAfter('ECONNRESET', isTake)).toEqual({ b: 1, all: 1 })
  })

  test('a sweep that fails changes no count', async () => {
    expect(await foundAfter('ECONNRESET', (text) => text.includes('delete'))).toEqual({ a: 1, b: 1, all: 2 })
  })
})

test.each<[string, unknown]>([
  ['true', true],
  ['an unknown option', { evry: '10s' }],
  ['an every of 0', { every: 0 }],
  ['an every above an hour', { every: '61m' }],
  ['a top of 0', { top: 0 }],
  ['a top above 500', { top: 501 }],
  ['null', null],
])('countDenials refuses %s', (_, denials) => {
  const make = () =>
    new Ratelimit({ db: database.db, limiter: NONE, prefix: 'p', use: [countDenials(denials as object)] })
  expect(make).toThrow(expect.objectContaining({ code: expect.stringMatching(/INVALID_(OPTION|DURATION)/) }))
})
