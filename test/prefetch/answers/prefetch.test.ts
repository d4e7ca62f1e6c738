import diagnostics from 'node:diagnostics_channel'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SQL } from 'drizzle-orm'
import { lockout } from 'drizzle-ratelimit/lockout'
import { type PrefetchOptions, prefetch } from 'drizzle-ratelimit/prefetch'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { balance } from '../../../src/credits/balance.ts'
import {
  type Database,
  type DecisionMessage,
  type Limiter,
  limitAll,
  Ratelimit,
  type RatelimitConfig,
  type RatelimitError,
} from '../../../src/index.ts'
import { Quota, reserveAll, spend } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { gate } from '../../support/gate.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { isGate } from '../../support/runs.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const HOURLY = Ratelimit.fixedWindow(1000, '1h')
const UNDO = () => {
  throw new Error('undo')
}
const PREFETCH: PrefetchOptions = { tokens: 50, for: '10s' }
let prefixes = 0
afterEach(() => void vi.useRealTimers())

/** A limiter with prefetch, the statements that it runs, and another limiter that looks at the rows. */
function prefetching(
  limiter: Limiter = HOURLY,
  options: Partial<RatelimitConfig> = {},
  before?: (text: string) => unknown,
) {
  const clock = new TestClock()
  const { db, statements } = watch(database.db, before)
  const common = { limiter, prefix: `stock ${prefixes++}`, cleanupProbability: 0, clock: clock.now }
  const ratelimit = new Ratelimit({ ...common, db, use: [prefetch(PREFETCH)], ...options } as RatelimitConfig)
  const asking = new Ratelimit({ ...common, db: database.db })
  const used = async (key = 'key') => (await asking.getRemaining(key)).used
  return { clock, statements, ratelimit, asking, used, common, db }
}

/** Calls until a stock of 50 begins, of which nothing is used yet. */
async function stocked({ limit }: { limit: () => Promise<unknown> }): Promise<void> {
  for (let i = 0; i < CALLS; i++) await limit()
}
const CALLS = 26
const LEFT = 50

function limitOf(ratelimit: Ratelimit, key = 'key'): { limit: () => Promise<unknown> } {
  return { limit: () => ratelimit.limit(key) }
}

test('a sole process is denied exactly as without prefetch, after few statements', async () => {
  const { ratelimit, statements, asking } = prefetching()
  for (let i = 0; i < 1000; i++) expect(await ratelimit.limit('key')).toMatchObject({ success: true })
  expect(statements.length).toBeLessThan(80)
  expect(await ratelimit.limit('key')).toEqual(await asking.limit('key'))
})

describe('more calls wait than a stock has units', () => {
  const MANY = Ratelimit.fixedWindow(100_000, '1h')
  const MORE = LEFT + 300

  function callsOf(ratelimit: Ratelimit, count = MORE) {
    return Array.from({ length: count }, () => ratelimit.limit('key'))
  }

  test('the statement that fetches it decides them all', async () => {
    const { ratelimit, statements, used } = prefetching(MANY)
    await stocked(limitOf(ratelimit))
    const before = statements.length
    // The stock has units for some of them.
    const answers = await Promise.all(callsOf(ratelimit))
    expect(answers.every(({ success }) => success)).toBe(true)
    expect(statements.length - before).toBe(1)
    await ratelimit.close()
    expect(await used()).toBe(CALLS + MORE)
  })

  /** Callers that call one after the other, or in turns of many calls at once. */
  async function crowd(ratelimit: Ratelimit, keys: number, turns: number, atOnce: number): Promise<void> {
    const caller = async (_: unknown, number: number) => {
      for (let turn = 0; turn < turns; turn++) {
        const key = `key ${(number + 7 * turn) % keys}`
        const answers = await Promise.all(Array.from({ length: atOnce }, () => ratelimit.limit(key)))
        expect(answers.every(({ success }) => success)).toBe(true)
      }
    }
    await Promise.all(Array.from({ length: 64 }, caller))
  }

  test.each([
    ['one after the other', 1, 50, 1],
    ['in turns of 50', 16, 20, 50],
  ])('64 callers make no more statements than without prefetch, %s', async (_, ...load) => {
    const { ratelimit, statements, common } = prefetching(MANY)
    const without = watch(database.db)
    const plain = new Ratelimit({ ...common, db: without.db, prefix: `${common.prefix}, none` })
    await crowd(plain, ...load)
    await crowd(ratelimit, ...load)
    expect(statements.length).toBeLessThanOrEqual(without.statements.length)
  })

  test('and others have taken meanwhile: exactly as many pass as are left, after few statements', async () => {
    const { ratelimit, asking, statements, used } = prefetching()
    await stocked(limitOf(ratelimit))
    await asking.limit('key', { rate: 1000 - CALLS - LEFT - 30 })
    const before = statements.length
    const answers = await Promise.all(callsOf(ratelimit, LEFT + 200))
    expect(answers.filter(({ success }) => success)).toHaveLength(LEFT + 30)
    expect(statements.length - before).toBeLessThanOrEqual(3)
    expect(await used()).toBe(1000)
  })

  test('and their rates differ: those pass that pass without prefetch', async () => {
    const { ratelimit, asking } = prefetching()
    await stocked(limitOf(ratelimit))
    await asking.limit('key', { rate: 1000 - CALLS - LEFT - 10 })
    const rates = [LEFT, 1, 20, 5, 3, 4]
    const answers = await Promise.all(rates.map((rate) => ratelimit.limit('key', { rate })))
    expect(answers.map(({ success }) => success)).toEqual([true, true, false, true, true, false])
    expect(answers[5]).toMatchObject({ remaining: 1, retryAfter: expect.any(Number) })
  })

  /** A limiter whose stock is used up. From `hold` to `open` its statements wait. */
  async function holding(options: Partial<RatelimitConfig> = {}) {
    let open = () => {}
    let held: Promise<void> | undefined
    const hold = () => {
      held = new Promise((resolve) => {
        open = resolve
      })
    }
    const own = prefetching(MANY, options, () => held)
    await stocked(limitOf(own.ratelimit))
    for (let i = 0; i < LEFT; i++) await own.ratelimit.limit('key')
    return { ...own, hold, open: () => open() }
  }

  test('one gives up before it is answered: its unit is there for others', async () => {
    for (const isSent of [false, true]) {
      const { ratelimit, statements, used, hold, open } = await holding()
      hold()
      const before = statements.length
      const first = ratelimit.limit('key')
      const ending = new AbortController()
      const aborted = ratelimit.blockUntilReady('key', '10s', { signal: ending.signal })
      const others = callsOf(ratelimit, 100)
      if (isSent) await expect.poll(() => statements.length - before, PATIENTLY).toBe(1)
      ending.abort(new Error('enough'))
      await expect(aborted).rejects.toThrow('enough')
      open()
      expect((await Promise.all([first, ...others])).every(({ success }) => success)).toBe(true)
      expect(statements.length - before).toBe(1)
      await ratelimit.close()
      expect(await used()).toBe(CALLS + LEFT + 101)
    }
  })

  test('one gives up whose key is remembered no more: its unit goes back', async () => {
    const { ratelimit, used, hold, open } = await holding({ use: [prefetch({ ...PREFETCH, maxKeys: 1 })] })
    hold()
    const ending = new AbortController()
    const first = ratelimit.limit('key')
    const aborted = ratelimit.blockUntilReady('key', '10s', { signal: ending.signal })
    const other = ratelimit.limit('another key')
    ending.abort(new Error('enough'))
    await expect(aborted).rejects.toThrow('enough')
    open()
    await Promise.all([first, other])
    await ratelimit.close()
    expect(await used()).toBe(CALLS + LEFT + 1)
  })

  test('the first gives up when it was sent: the others get its answer', async () => {
    const { ratelimit, statements, used, hold, open } = await holding()
    hold()
    const before = statements.length
    const ending = new AbortController()
    const first = ratelimit.blockUntilReady('key', '10s', { signal: ending.signal })
    const others = callsOf(ratelimit, 100)
    await expect.poll(() => statements.length - before, PATIENTLY).toBe(1)
    ending.abort(new Error('enough'))
    await expect(first).rejects.toThrow('enough')
    open()
    expect((await Promise.all(others)).every(({ success }) => success)).toBe(true)
    expect(statements.slice(before).filter((text) => !text.includes('refundableUntil'))).toHaveLength(1)
    await ratelimit.close()
    await expect.poll(() => used(), PATIENTLY).toBe(CALLS + LEFT + 100)
  })

  test('all give up: calls that come later go on without the statement', async () => {
    const { ratelimit, statements, hold, open } = await holding()
    hold()
    const before = statements.length
    const ending = new AbortController()
    const { signal } = ending
    const all = Array.from({ length: 100 }, () => ratelimit.blockUntilReady('key', '10s', { signal }))
    const ended = Promise.allSettled(all)
    await expect.poll(() => statements.length - before, PATIENTLY).toBe(1)
    const later = ratelimit.limit('key')
    ending.abort(new Error('enough'))
    await ended
    await expect.poll(() => statements.length - before, PATIENTLY).toBe(2)
    open()
    expect(await later).toMatchObject({ success: true })
  })
})

test('a call that fetches a stock shares its statement with calls that fetch none', async () => {
  const { ratelimit, statements, asking } = prefetching()
  await stocked(limitOf(ratelimit))
  for (let i = 0; i < LEFT; i++) await ratelimit.limit('key')
  const others = ['a', 'b', 'c']
  for (const key of others) await asking.limit(key)
  const before = statements.length
  const answers = await Promise.all(['key', ...others].map((key) => ratelimit.limit(key)))
  expect(answers.map(({ remaining }) => remaining)).toEqual([1000 - CALLS - LEFT - 1, 998, 998, 998])
  // Alone in a statement of a slow connection, a key would collect the calls of all callers.
  expect(statements.length - before).toBe(1)
})

test('a key that is asked rarely gets no stock', async () => {
  const { ratelimit, clock, used } = prefetching()
  for (let calls = 1; calls <= 5; calls++) {
    expect(await ratelimit.limit('key')).not.toHaveProperty('prefetched')
    expect(await used()).toBe(calls)
    clock.advance(10_000)
  }
})

test('an answer from memory says what is certain, and which window paid', async () => {
  const { ratelimit, clock } = prefetching()
  await stocked(limitOf(ratelimit))
  expect(await ratelimit.limit('key')).toEqual({
    ...{ success: true, limit: 1000, remaining: LEFT - 1, retryAfter: 0, prefetched: true },
    ...{ reset: clock.ms + 3_600_000, start: clock.ms },
  })
})

test('a call that takes less than its rate uses a stock only for the whole rate', async () => {
  const { ratelimit, statements } = prefetching()
  await stocked(limitOf(ratelimit))
  const before = statements.length
  expect(await ratelimit.limit('key', { rate: 30, atLeast: 1 })).toMatchObject({
    granted: 30,
    prefetched: true,
  })
  expect(statements).toHaveLength(before)
  const more = await ratelimit.limit('key', { rate: 1000, atLeast: 1 })
  expect(more).toMatchObject({ success: true, granted: 1000 - CALLS - 30, remaining: 0 })
  expect(more).not.toHaveProperty('prefetched')
})

describe.each([
  ['fixed window', Ratelimit.fixedWindow(1000, '1h'), 3_600_000],
  ['calendar window', calendarWindow(1000, 'hour', { anchor: new Date(new TestClock().ms) }), 3_600_000],
])('a stock of a %s', (_, limiter, periodMs) => {
  test('ends with its window, to the millisecond', async () => {
    const { ratelimit, clock, statements } = prefetching(limiter)
    await ratelimit.limit('key')
    const start = clock.ms
    clock.advance(periodMs - 5)
    await stocked(limitOf(ratelimit))
    clock.advance(4)
    const before = statements.length
    expect(await ratelimit.limit('key')).toMatchObject({ prefetched: true, start })
    clock.advance(1)
    expect(await ratelimit.limit('key')).toMatchObject({ start: clock.ms, remaining: 999 })
    expect(statements.length).toBeGreaterThan(before)
  })

  test('outlives its time only in the row, and counts in the same window', async () => {
    const { ratelimit, clock, statements, used } = prefetching(limiter)
    await stocked(limitOf(ratelimit))
    clock.advance(10_000)
    const before = statements.length
    const answer = await ratelimit.limit('key')
    expect(answer).toMatchObject({ success: true, remaining: 1000 - CALLS - 1 })
    expect(answer).not.toHaveProperty('prefetched')
    // What was left went back with the take.
    expect(statements.length - before).toBe(1)
    await ratelimit.close()
    expect(await used()).toBe(CALLS + 1)
  })
})

describe('a bucket', () => {
  const bucket = Ratelimit.tokenBucket(1, '1s', 1000)

  test('has stocks that end after their time', async () => {
    const { ratelimit, clock } = prefetching(bucket)
    await stocked(limitOf(ratelimit))
    clock.advance(9_999)
    expect(await ratelimit.limit('key')).toMatchObject({ prefetched: true })
    clock.advance(1)
    expect(await ratelimit.limit('key')).not.toHaveProperty('prefetched')
  })

  test('gets no more back than if the unused units had not been charged', async () => {
    const { ratelimit, clock, asking } = prefetching(bucket)
    await stocked(limitOf(ratelimit))
    clock.advance(5_000)
    await ratelimit.close()
    // Five have refilled, and one may until the refund arrives.
    expect(await asking.getRemaining('key')).toMatchObject({ remaining: 1000 - CALLS - LEFT + 5 + LEFT - 6 })
  })

  test('gets nothing back from a refund that comes late', async () => {
    const clock = new TestClock()
    let stepMs = 0
    const slowly = () => {
      clock.advance(stepMs)
      return clock.now()
    }
    const { ratelimit, common } = prefetching(bucket, { clock: slowly })
    await stocked(limitOf(ratelimit))
    // Some steps lie between the moment at which the refund is worked out and its statement.
    stepMs = 600
    await ratelimit.close()
    stepMs = 0
    const asking = new Ratelimit({ ...common, db: database.db, clock: clock.now })
    const { remaining } = await asking.getRemaining('key')
    expect(remaining).toBeLessThan(1000 - CALLS - LEFT + 10)
  })

  test('lets stocks of several processes add nothing to it', async () => {
    const { ratelimit, common, clock } = prefetching(
      Ratelimit.tokenBucket(1, '1s', 1000, { refill: 'continuous' }),
    )
    const other = new Ratelimit({ ...common, db: database.db, use: [prefetch(PREFETCH)] })
    for (const each of [ratelimit, other]) await stocked(limitOf(each))
    clock.advance(60_000)
    // The bucket is full again. What the stocks had left must not fill it once more.
    let granted = 0
    for (const each of [ratelimit, other, ratelimit, other]) {
      while ((await each.limit('key', { rate: 10 })).success) granted += 10
    }
    expect(granted).toBeLessThanOrEqual(1000)
  })
})

describe('others', () => {
  test('are left most of what is left', async () => {
    const { ratelimit, asking, used } = prefetching(Ratelimit.fixedWindow(100, '1h'))
    for (let calls = 1; calls <= 60; calls++) {
      await ratelimit.limit('key')
      expect((await used()) - calls).toBeLessThanOrEqual((100 - calls) / 5)
    }
    await asking.limit('key', { rate: 1 })
  })

  test('get back at once what exceeds the fair share, because they took more meanwhile', async () => {
    const { ratelimit, asking, used } = prefetching(Ratelimit.fixedWindow(1000, '1h'))
    for (let i = 0; i < CALLS + LEFT; i++) await ratelimit.limit('key')
    await asking.limit('key', { rate: 1000 - CALLS - LEFT - 41 })
    await ratelimit.limit('key')
    // Forty were left: it asked for all, and keeps a fifth of them.
    await expect.poll(() => used(), PATIENTLY).toBe(1000 - 40 + 8)
  })

  test('get back all stocks that are over by one statement', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const { ratelimit, clock, statements, used } = prefetching(HOURLY, { connections: 1 })
    for (const key of ['a', 'b', 'c']) await stocked(limitOf(ratelimit, key))
    clock.advance(10_000)
    const before = statements.length
    vi.advanceTimersByTime(10_000)
    vi.useRealTimers()
    for (const key of ['a', 'b', 'c']) await expect.poll(() => used(key), PATIENTLY).toBe(CALLS)
    expect(statements.length - before).toBe(1)
  })
})

describe('calls at once', () => {
  test('wait for the stock that one of them fetches', async () => {
    const { ratelimit, statements } = prefetching()
    for (let i = 0; i < CALLS + LEFT; i++) await ratelimit.limit('key')
    const before = statements.length
    const answers = await Promise.all(Array.from({ length: 40 }, () => ratelimit.limit('key')))
    expect(answers.filter(({ success }) => success)).toHaveLength(40)
    expect(statements.length - before).toBe(1)
  })

  test('are granted all that is left, and no more', async () => {
    const { ratelimit, used } = prefetching(Ratelimit.fixedWindow(100, '1h'))
    const answers = await Promise.all(
      Array.from({ length: 30 }, async () => {
        const own = []
        for (let i = 0; i < 10; i++) own.push(await ratelimit.limit('key'))
        return own
      }),
    )
    expect(answers.flat().filter(({ success }) => success)).toHaveLength(100)
    expect(await used()).toBe(100)
  })

  test('are sent if the call that they waited for gives up', async () => {
    let isStuck = false
    let stuck = 0
    const { ratelimit } = prefetching(HOURLY, {}, () => isStuck && ++stuck && new Promise(() => {}))
    await ratelimit.blockUntilReady('key', '10s')
    isStuck = true
    const ended = new AbortController()
    const first = ratelimit.blockUntilReady('key', '10s', { signal: ended.signal })
    await expect.poll(() => stuck, PATIENTLY).toBe(1)
    isStuck = false
    const second = ratelimit.limit('key')
    await sleep(1)
    ended.abort(new Error('enough'))
    await expect(first).rejects.toThrow('enough')
    expect(await second).toMatchObject({ success: true })
  })
})

describe('what stands in the row counts for', () => {
  test.each<[string, (one: Ratelimit) => Promise<unknown>]>([
    ['a forced charge', (one) => one.limit('key', { rate: 500, force: true })],
    ['a reservation', (one) => one.reserve('key', { rate: 500 })],
    ['another plan', (one) => one.limit('key', { rate: 500, limiter: Ratelimit.fixedWindow(900, '1h') })],
  ])('%s', async (_, call) => {
    const { ratelimit, used } = prefetching()
    await stocked(limitOf(ratelimit))
    await call(ratelimit)
    await ratelimit.close()
    expect(await used()).toBe(CALLS + 500)
  })

  test('a refund', async () => {
    const { ratelimit, used } = prefetching()
    await stocked(limitOf(ratelimit))
    expect(await ratelimit.limit('key', { rate: -CALLS })).toMatchObject({ returned: CALLS })
    expect(await used()).toBe(0)
  })

  test('calls after a reset, which forgets the stock', async () => {
    const { ratelimit, used } = prefetching()
    await stocked(limitOf(ratelimit))
    await ratelimit.resetUsedTokens('key')
    expect(await ratelimit.limit('key')).not.toHaveProperty('prefetched')
    await ratelimit.close()
    expect(await used()).toBe(1)
  })

  test('calls after a reset, though the stock was on its way back', async () => {
    let release = () => {}
    const released = new Promise<void>((resolve) => {
      release = resolve
    })
    let holds = false
    const before = (text: string) => (holds && !text.startsWith('delete') ? released : undefined)
    const { ratelimit, asking, used } = prefetching(
      HOURLY,
      { use: [prefetch({ ...PREFETCH, maxKeys: 1 })] },
      before,
    )
    await stocked(limitOf(ratelimit))
    holds = true
    const evicting = ratelimit.limit('another key')
    await sleep(0)
    const charged = ratelimit.resetUsedTokens('key').then(() => asking.limit('key', { rate: 3 }))
    // If the reset waits for nothing, the calls after it are first.
    await Promise.race([charged, sleep(100)])
    release()
    await Promise.all([evicting, charged])
    await ratelimit.close()
    expect(await used()).toBe(3)
  })

  test('a refund in a transaction, and a rollback, which lose no unit', async () => {
    const { ratelimit, used, clock } = prefetching()
    await stocked(limitOf(ratelimit))
    for (const end of [() => {}, UNDO]) {
      await database.db
        .transaction(async (tx) => {
          await ratelimit.limit('key', { rate: -1, tx })
          end()
        })
        .catch(() => {})
      expect(await ratelimit.limit('key')).not.toHaveProperty('prefetched')
      clock.advance(1)
    }
    await ratelimit.close()
    expect(await used()).toBe(CALLS - 1 + 2)
  })

  test('a refund in a transaction, after which a crash loses one stock at most', async () => {
    const { ratelimit, used, clock } = prefetching(HOURLY, { use: [prefetch({ tokens: LEFT, for: 20 })] })
    await stocked(limitOf(ratelimit))
    await database.db.transaction((tx) => ratelimit.limit('key', { rate: -1, tx }))
    let calls = CALLS - 1
    for (let i = 0; i < 60; i++) {
      await ratelimit.limit('key')
      expect((await used()) - ++calls).toBeLessThanOrEqual(LEFT)
    }
    clock.advance(20)
    await expect.poll(() => used(), PATIENTLY).toBe(calls)
    await expect.poll(() => ratelimit.limit('key'), PATIENTLY).toHaveProperty('prefetched')
  })

  test('calls after a reset, though a refund in a transaction has set the stock aside', async () => {
    const { ratelimit, asking, used } = prefetching()
    await stocked(limitOf(ratelimit))
    await database.db.transaction((tx) => ratelimit.limit('key', { rate: -1, tx }))
    await ratelimit.resetUsedTokens('key')
    await asking.limit('key', { rate: 100 })
    await ratelimit.close()
    expect(await used()).toBe(100)
  })

  test('calls after a reset by another limiter of the process', async () => {
    const { ratelimit, common } = prefetching()
    const other = new Ratelimit({ ...common, db: database.db })
    await stocked(limitOf(ratelimit))
    await stocked(limitOf(ratelimit, 'another key'))
    await other.resetUsedTokens('key')
    expect(await ratelimit.limit('key')).not.toHaveProperty('prefetched')
    expect(await ratelimit.limit('another key')).toHaveProperty('prefetched')
  })

  test('no call after a reset of the same key with another prefix', async () => {
    const { ratelimit, common } = prefetching()
    const other = new Ratelimit({ ...common, prefix: `${common.prefix} too`, db: database.db })
    await stocked(limitOf(ratelimit))
    await other.resetUsedTokens('key')
    expect(await ratelimit.limit('key')).toHaveProperty('prefetched')
  })

  test('limitAll and calls in a transaction, which always ask the database', async () => {
    const { ratelimit, used, common, db } = prefetching()
    await stocked(limitOf(ratelimit))
    const one = new Ratelimit({ ...common, db, use: [prefetch(PREFETCH)] })
    let calls = CALLS
    for (const each of [ratelimit, one]) {
      expect(await limitAll([{ ratelimit: each, key: 'key' }])).toMatchObject({ success: true })
      await database.db.transaction(async (tx) => {
        expect(await each.limit('key', { tx })).not.toHaveProperty('prefetched')
      })
      calls += 2
      expect(await used()).toBe(calls)
    }
  })

  describe('a list, for which the units of this process come back,', () => {
    const ALL = 1000 - CALLS
    const NAMED = { id: 'job', expires: '10m' } as const

    test.each<[string, (one: Ratelimit) => Promise<{ readonly success: boolean }>]>([
      ['limit with once', (one) => one.limit('key', { rate: ALL, once: { id: 'job', for: '1h' } })],
      ['a reservation with a name', (one) => reserveAll([{ ratelimit: one, key: 'key', rate: ALL }], NAMED)],
      ['limitAll', (one) => limitAll([{ ratelimit: one, key: 'key', rate: ALL }])],
      ['reserveAll', (one) => reserveAll([{ ratelimit: one, key: 'key', rate: ALL }])],
      ['spend', (one) => spend([{ ratelimit: one, key: 'key' }], { rate: ALL })],
    ])('%s', async (_, call) => {
      const { ratelimit, used } = prefetching()
      await stocked(limitOf(ratelimit))
      expect(await used()).toBe(CALLS + LEFT)
      expect(await call(ratelimit)).toMatchObject({ success: true })
      expect(await ratelimit.limit('key')).toMatchObject({ success: false })
      await ratelimit.close()
      expect(await used()).toBe(1000)
    })

    test('also those that were on their way back, and those that are being fetched', async () => {
      let open = () => {}
      const opened = new Promise<void>((resolve) => {
        open = resolve
      })
      let holds = false
      const { ratelimit, used } = prefetching(HOURLY, {}, () => holds && opened)
      await stocked(limitOf(ratelimit))
      holds = true
      const calls = Array.from({ length: LEFT + 1 }, () => ratelimit.limit('key'))
      await sleep(0)
      const once = ratelimit.limit('key', { rate: ALL - LEFT - 1, once: { id: 'job', for: '1h' } })
      await sleep(0)
      open()
      expect((await Promise.all(calls)).every(({ success }) => success)).toBe(true)
      expect(await once).toMatchObject({ success: true })
      expect(await used()).toBe(1000)
    })

    test('also those of a key that was forgotten while they were being fetched', async () => {
      const { opened, open } = gate()
      let holds = false
      const use = [prefetch({ ...PREFETCH, maxKeys: 1 })]
      const { ratelimit, used } = prefetching(HOURLY, { use }, () => holds && opened)
      await stocked(limitOf(ratelimit))
      holds = true
      const calls = Array.from({ length: LEFT + 1 }, () => ratelimit.limit('key'))
      await sleep(0)
      const other = ratelimit.limit('another key')
      open()
      expect((await Promise.all([...calls, other])).every(({ success }) => success)).toBe(true)
      const rest = { ratelimit, key: 'key', rate: ALL - LEFT - 1 }
      expect(await limitAll([rest])).toMatchObject({ success: true })
      expect(await used()).toBe(1000)
    })

    test('and no other call takes them before it', async () => {
      let open = () => {}
      const opened = new Promise<void>((resolve) => {
        open = resolve
      })
      let holds = false
      const { ratelimit, used } = prefetching(HOURLY, {}, () => holds && opened)
      await stocked(limitOf(ratelimit))
      holds = true
      const once = ratelimit.limit('key', { rate: ALL - 1, once: { id: 'job', for: '1h' } })
      await sleep(0)
      const call = ratelimit.limit('key')
      await sleep(0)
      open()
      expect(await call).toMatchObject({ success: true })
      expect(await once).toMatchObject({ success: true })
      expect(await used()).toBe(1000)
    })

    test('and until all lists of the key have ended, but no longer, it gets no stock', async () => {
      const [one, other] = [gate(), gate()]
      let lists = 0
      const { ratelimit, used } = prefetching(HOURLY, {}, (text) => {
        if (text.includes('ratelimit_found')) return [one, other][lists++]?.opened
        return undefined
      })
      const call = () => ratelimit.limit('key')
      await stocked({ limit: call })
      const first = limitAll([{ ratelimit, key: 'key' }])
      await expect.poll(() => lists, PATIENTLY).toBe(1)
      const second = limitAll([{ ratelimit, key: 'key', rate: ALL - 1 - CALLS }])
      one.open()
      expect(await first).toMatchObject({ success: true })
      await expect.poll(() => lists, PATIENTLY).toBe(2)
      await stocked({ limit: call })
      other.open()
      expect(await second).toMatchObject({ success: true })
      expect(await used()).toBe(1000)
      await ratelimit.resetUsedTokens('key')
      await stocked({ limit: call })
      expect(await call()).toMatchObject({ prefetched: true })
    })

    test('once the time of the call is over, nothing more is sent', async () => {
      let holds = false
      const { ratelimit, statements } = prefetching(
        HOURLY,
        { timeout: 100 },
        () => holds && new Promise(() => {}),
      )
      await stocked(limitOf(ratelimit))
      holds = true
      const before = statements.length
      // Two real timers of one length may end in either order.
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
      const once = ratelimit.limit('key', { once: { id: 'job', for: '1h' } }).catch(({ code }) => code)
      await expect.poll(() => statements.length - before, PATIENTLY).toBe(1)
      vi.advanceTimersByTime(100)
      expect(await once).toBe('TIMEOUT')
      expect(statements.length - before).toBe(1)
    })
  })
})

describe('the end of a process', () => {
  test.each<[string, (one: Ratelimit) => Promise<void>]>([
    ['close', (one) => one.close()],
    ['await using', (one) => one[Symbol.asyncDispose]()],
  ])('%s gives all stocks back', async (_, close) => {
    const { ratelimit, used } = prefetching()
    for (const key of ['key', 'other']) await stocked(limitOf(ratelimit, key))
    await close(ratelimit)
    for (const key of ['key', 'other']) expect(await used(key)).toBe(CALLS)
    for (let calls = 1; calls <= 5; calls++) {
      expect(await ratelimit.limit('key')).not.toHaveProperty('prefetched')
      expect(await used()).toBe(CALLS + calls)
    }
  })

  test('close waits for a stock that is on its way', async () => {
    const { ratelimit, used } = prefetching()
    await stocked(limitOf(ratelimit))
    const calls = Array.from({ length: LEFT + 2 }, () => ratelimit.limit('key'))
    await sleep(0)
    await ratelimit.close()
    await Promise.all(calls)
    await expect.poll(() => used(), PATIENTLY).toBe(CALLS + LEFT + 2)
  })

  test('close may be called twice at once, and never rejects', async () => {
    let fails = false
    const read = () => {
      if (fails) throw new Error('no clock')
      return new Date()
    }
    const { ratelimit, used } = prefetching()
    await stocked(limitOf(ratelimit))
    await Promise.all([ratelimit.close(), ratelimit.close()])
    expect(await used()).toBe(CALLS)
    const without = prefetching(HOURLY, { clock: read })
    await stocked(limitOf(without.ratelimit))
    fails = true
    await without.ratelimit.close()
  })

  test('close does nothing without prefetch, and before the first call', async () => {
    const { asking, ratelimit } = prefetching()
    await asking.close()
    await ratelimit.close()
    await ratelimit.limit('key')
    expect(await ratelimit.limit('key')).not.toHaveProperty('prefetched')
  })

  test('waitUntil gets the work of giving back', async () => {
    const works: Promise<unknown>[] = []
    const use = [prefetch({ tokens: 50, for: 5 })]
    const { ratelimit, clock, used } = prefetching(HOURLY, {
      use,
      waitUntil: (work) => void works.push(work),
    })
    await stocked(limitOf(ratelimit))
    clock.advance(5)
    await Promise.all(works)
    await expect.poll(() => used(), PATIENTLY).toBe(CALLS)
  })
})

test('during an outage a stock goes on answering until it is used up', async () => {
  let isAway = false
  const away = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
  const { ratelimit } = prefetching(HOURLY, {}, () => isAway && Promise.reject(away))
  await stocked(limitOf(ratelimit))
  isAway = true
  for (let i = 0; i < LEFT; i++) expect(await ratelimit.limit('key')).toMatchObject({ prefetched: true })
  await expect(ratelimit.limit('key')).rejects.toMatchObject({ code: 'UNREACHABLE' })
  isAway = false
  await expect
    .poll(() => ratelimit.limit('key').catch(() => 'away'), PATIENTLY)
    .toMatchObject({ success: true })
})

test('calls that wait for a stock fail together if the database is away', async () => {
  let isAway = false
  let failures = 0
  const away = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
  const call = () => ratelimit.limit('key').catch(({ code }: RatelimitError) => code)
  const later: Promise<unknown>[] = []
  const fail = () => {
    // These come when the statement was sent. They ask once more.
    if (failures++ === 0) for (let i = 0; i < 20; i++) later.push(call())
    return Promise.reject(away)
  }
  const { ratelimit } = prefetching(HOURLY, {}, () => isAway && fail())
  await stocked(limitOf(ratelimit))
  for (let i = 0; i < LEFT; i++) await ratelimit.limit('key')
  isAway = true
  const calls = Array.from({ length: 20 }, call)
  expect(new Set(await Promise.all(calls))).toEqual(new Set(['UNREACHABLE']))
  expect(failures).toBe(1)
  expect(new Set(await Promise.all(later))).toEqual(new Set(['UNREACHABLE']))
  expect([later.length, failures]).toEqual([20, 2])
})

test.runIf(isGate)(
  'at most 10,000 calls wait, also for stocks, and those that have ended make room',
  async () => {
    let held: Promise<void> | undefined
    const many = Ratelimit.fixedWindow(10_000_000, '1h')
    const { ratelimit } = prefetching(many, { timeout: 1000 }, () => held)
    const keys = Array.from({ length: 12 }, (_, place) => `key ${place}`)
    const call = (key: string) =>
      ratelimit.limit(key).then(
        () => 'granted',
        ({ code }: RatelimitError) => code,
      )
    const callsOf = (count: number) => keys.flatMap((key) => Array.from({ length: count }, () => call(key)))
    /** How many of 12,000 calls wait that come while the next stocks are fetched. */
    const crowd = async (endWait: (open: () => void) => void) => {
      held = undefined
      for (const key of keys) await stocked(limitOf(ratelimit, key))
      const { opened, open } = gate()
      held = opened
      const fetching = callsOf(LEFT + 1)
      await sleep(0)
      const calls = callsOf(1000)
      await sleep(0)
      endWait(open)
      await Promise.all(fetching)
      const codes = await Promise.all(calls)
      open()
      return codes.filter((code) => code !== 'OVERLOADED').length
    }
    // A call that was sent waits no more, so a few less may be counted than wait.
    const expectMost = (waited: number) => {
      expect(waited).toBeLessThanOrEqual(10_000)
      expect(waited).toBeGreaterThan(9_000)
    }
    expectMost(await crowd((open) => open()))
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
    await crowd(() => vi.advanceTimersByTime(1000))
    vi.useRealTimers()
    expectMost(await crowd((open) => open()))
  },
)

test('a key loses at most one stock to connections that break, however many calls find them', async () => {
  const broken = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
  let isBroken = false
  const db: Database = {
    ...watch(database.db).db,
    execute: async (query: SQL) => {
      const answer = await database.db.execute(query)
      if (isBroken) throw broken
      return answer
    },
  }
  const { ratelimit, used } = prefetching(HOURLY, { db })
  await stocked(limitOf(ratelimit))
  for (let i = 0; i < LEFT; i++) await ratelimit.limit('key')
  isBroken = true
  for (let i = 0; i < 4; i++)
    await expect(ratelimit.limit('key')).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  isBroken = false
  // Each of these calls may have been charged.
  expect((await used()) - CALLS - LEFT - 4).toBeLessThanOrEqual(PREFETCH.tokens)
  for (let i = 0; i < 10; i++) await ratelimit.limit('key')
  expect(await ratelimit.limit('key')).toMatchObject({ prefetched: true })
})

test('remembers as many keys as it may, and gives back the stocks of others', async () => {
  const { ratelimit, used } = prefetching(HOURLY, { use: [prefetch({ ...PREFETCH, maxKeys: 2 })] })
  for (const key of ['a', 'b', 'c']) await stocked(limitOf(ratelimit, key))
  await expect.poll(() => used('a'), PATIENTLY).toBe(CALLS)
  expect(await used('b')).toBe(CALLS + LEFT)
})

test('remembers denials together with prefetch', async () => {
  const { ratelimit, statements } = prefetching(Ratelimit.fixedWindow(40, '1h'), { inMemoryBlock: true })
  for (let i = 0; i < 40; i++) expect(await ratelimit.limit('key')).toMatchObject({ success: true })
  await ratelimit.limit('key')
  const before = statements.length
  expect(await ratelimit.limit('key')).toMatchObject({ success: false, retryAfter: 3_600_000 })
  expect(statements).toHaveLength(before)
})

test('a decision from a stock says so on the diagnostics channel', async () => {
  const { ratelimit } = prefetching()
  await stocked(limitOf(ratelimit))
  const messages: unknown[] = []
  const listen = (message: unknown) => void messages.push(message)
  diagnostics.subscribe('drizzle-ratelimit:decision', listen)
  await ratelimit.limit('key')
  diagnostics.unsubscribe('drizzle-ratelimit:decision', listen)
  expect(messages).toEqual([
    expect.objectContaining({ success: true, prefetched: true } satisfies Partial<DecisionMessage>),
  ])
})

describe('the clocks of a process', () => {
  /** A limiter that counts by the database's clock and by those of this process. */
  function byOwnClocks(db: Database = database.db) {
    const use = [prefetch({ tokens: 50, for: '1h' })]
    return new Ratelimit({ db, limiter: HOURLY, prefix: `stock ${prefixes++}`, use, cleanupProbability: 0 })
  }

  test.each([-7_200_000, 0, 7_200_000])('may be %i ms wrong', async (wrongMs) => {
    vi.useFakeTimers({ toFake: ['Date', 'performance'], now: Date.now() + wrongMs })
    const ratelimit = byOwnClocks()
    await stocked(limitOf(ratelimit))
    expect(await ratelimit.limit('key')).toMatchObject({ prefetched: true })
    // The window began a moment ago, by the database's clock.
    vi.advanceTimersByTime(3_600_000)
    expect(await ratelimit.limit('key')).not.toHaveProperty('prefetched')
  })

  test('end a stock if one of them says so', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'performance'] })
    for (const jump of [
      () => vi.advanceTimersByTime(3_600_000),
      () => vi.setSystemTime(Date.now() + 3_600_000),
    ]) {
      const ratelimit = byOwnClocks()
      await stocked(limitOf(ratelimit))
      expect(await ratelimit.limit('key')).toMatchObject({ prefetched: true })
      jump()
      expect(await ratelimit.limit('key')).not.toHaveProperty('prefetched')
    }
  })

  test('do not lengthen a stock when the wall clock goes back', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'performance'] })
    const ratelimit = byOwnClocks()
    await stocked(limitOf(ratelimit))
    vi.advanceTimersByTime(3_600_000)
    vi.setSystemTime(Date.now() - 7_200_000)
    expect(await ratelimit.limit('key')).not.toHaveProperty('prefetched')
  })
})

describe('a clock that fails', () => {
  /** A limiter with a stock of 50, whose clock fails from the next statement on if `fails` says so. */
  async function failing(options: Partial<RatelimitConfig> = {}) {
    const when = { fails: false, armed: false, sent: () => {} }
    const time = new TestClock()
    const now = () => {
      if (when.fails) throw new Error('no time')
      return time.now()
    }
    const own = prefetching(HOURLY, { clock: now, ...options }, () => {
      when.sent()
      when.fails = when.armed
    })
    await stocked(limitOf(own.ratelimit))
    return { ...own, when }
  }

  test('while a stock is fetched leaves no call without an answer', async () => {
    const { ratelimit, when } = await failing()
    let later: Promise<unknown> | undefined
    const sent = () => {
      later ??= ratelimit.limit('key').catch(({ code }: RatelimitError) => code)
    }
    Object.assign(when, { armed: true, sent })
    const calls = await Promise.all([
      ratelimit.limit('key', { rate: LEFT + 1 }),
      ...Array.from({ length: 3 }, () => ratelimit.limit('key')),
    ])
    // These were charged. The later one cannot know whether the stock still lasts.
    for (const call of calls) expect(call).toMatchObject({ success: true })
    expect(await later).toBe('INVALID_CLOCK')
    Object.assign(when, { fails: false, armed: false })
    expect(await ratelimit.limit('key')).toMatchObject({ success: true })
  })

  test('before a call is sent leaves no timer and no rejection behind', async () => {
    const unhandled: unknown[] = []
    const note = (reason: unknown) => void unhandled.push(reason)
    process.on('unhandledRejection', note)
    try {
      const time = new TestClock()
      for (let failing = 0; failing < 8; failing++) {
        let reads = 0
        const now = () => {
          if (reads++ === failing) throw new Error('no time')
          return time.now()
        }
        const { ratelimit } = prefetching(HOURLY, { clock: now, timeout: 5 })
        await Promise.allSettled([ratelimit.limit('key'), ratelimit.limit('key')])
      }
      // The timeouts of the calls are over.
      await sleep(20)
      expect(unhandled).toEqual([])
    } finally {
      process.off('unhandledRejection', note)
    }
  })
})

test('a quota says twice what a crash may lose: it grants no unit twice, and loses one stock until the period ends', async () => {
  const clock = new TestClock(Date.UTC(2026, 2, 31, 23))
  const config = { db: database.db, limiter: calendarWindow(1000, 'month'), prefix: `stock ${prefixes++}` }
  const layer = prefetch({ tokens: LEFT, for: '1h', mayLose: LEFT })
  const start = () => new Quota({ ...config, clock: clock.now, use: [layer] })
  const granted = async (quota: Quota) => {
    let count = 0
    while ((await quota.limit('org')).success) count++
    return count
  }
  const crashing = start()
  await stocked(limitOf(crashing, 'org'))
  // It has a whole stock in memory, and nobody gives it back.
  const next = start()
  expect(await granted(next)).toBe(1000 - CALLS - LEFT)
  expect(
    await database.rows('select count::int from rate_limit_durable where prefix = $1', [config.prefix]),
  ).toEqual([{ count: 1000 }])
  clock.advance(3_600_000)
  expect(await granted(next)).toBe(1000)
})

describe('what means nothing is refused:', () => {
  test.each<[string, unknown]>([
    ['no units', { tokens: 0, for: '1s' }],
    ['half units', { tokens: 1.5, for: '1s' }],
    ['no key', { ...PREFETCH, maxKeys: 0 }],
    ['less said to be lost than may be', { ...PREFETCH, mayLose: 49 }],
    ['too long', { tokens: 5, for: 3_600_001 }],
    ['null', null],
    ['nothing', undefined],
    ['an unknown name', { ...PREFETCH, keys: 5 }],
  ])('%s', (_, options) => {
    expect(() => prefetch(options as PrefetchOptions)).toThrow(
      expect.objectContaining({ code: 'INVALID_OPTION' }),
    )
  })

  test.each<[string, object]>([
    ['durable, and it is said once only', { durable: true }],
    ['keepEnded', { keepEnded: true }],
    ['thresholds', { thresholds: [1] }],
    ['coalesce', { coalesce: false }],
    ['credits', { limiter: balance() }],
    ['lockout', { limiter: lockout(5, '1m', { block: '1m' }) }],
  ])('%s', (_, options) => {
    const config = {
      db: database.db,
      limiter: HOURLY,
      prefix: 'refused',
      use: [prefetch(PREFETCH)],
      ...options,
    }
    expect(() => new Ratelimit(config as RatelimitConfig)).toThrow(
      expect.objectContaining({ code: 'INVALID_OPTION' }),
    )
  })
})
