import { afterEach, describe, expect, test, vi } from 'vitest'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import type { Fault } from '../support/proxy.ts'
import {
  count,
  errorOf,
  expectExact,
  expectQuiet,
  limiter,
  limiterOn,
  newPrefix,
  type Outcome,
  openPool,
  outcomeOf,
  recovers,
  SECRET,
  uncaughtBy,
  urlOf,
  usedOf,
  useProxy,
} from './kit.ts'

const database = useDatabase()
const network = useProxy(database)
afterEach(() => void vi.useRealTimers())

/**
 * Lets one request meet the fault: the next one, or a later one.
 *
 * @returns Whether it has met it.
 */
function once(fault: Fault, place = 0): () => boolean {
  let requests = 0
  network.proxy.fault = () => (requests++ === place ? fault : 'pass')
  return () => requests > place
}

/** A client that gives up a silent connection. A busy machine answers sooner. */
const IMPATIENT = { query_timeout: 1000 }

describe('one call', () => {
  test.each([
    ['cut before', 1],
    ['cut after', 2],
    ['stall before', 1],
    ['stall after', 2],
  ] as const)('%s: the outcome is unknown, and the next call goes on', async (fault, used) => {
    const opened = openPool(network.url, IMPATIENT)
    const prefix = newPrefix(fault)
    const ratelimit = limiterOn(opened, prefix)
    await ratelimit.limit(SECRET)
    const uncaught = await uncaughtBy(async () => {
      once(fault)
      expect(await outcomeOf(ratelimit.limit(SECRET))).toBe('OUTCOME_UNKNOWN')
    })
    expect(uncaught).toEqual([])
    await expect.poll(() => usedOf(database, prefix, SECRET)).toBe(used)
    expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 100 - used - 1 })
    await expectQuiet(opened)
  })

  test('a delay changes only the time', async () => {
    const opened = openPool(network.url, IMPATIENT)
    const ratelimit = limiterOn(opened, newPrefix('delay'))
    network.proxy.fault = () => 50
    expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 99 })
  })
})

test.each([
  ['cut before', 0],
  ['cut after', 0],
  ['cut before', 1],
  ['cut after', 1],
] as const)(
  'a reset of a bucket that starts with less, %s at request %s, changes nothing or is done',
  async (fault, place) => {
    const limiter = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 3 })
    const own = { limiter, prefix: newPrefix('reset'), cleanupProbability: 0 }
    const before = new Ratelimit({ ...own, db: openPool(await urlOf(database)).db })
    await before.resetUsedTokens(SECRET)
    await before.limit(SECRET, { rate: 2 })
    const ratelimit = new Ratelimit({ ...own, db: openPool(network.url).db })
    await ratelimit.getRemaining(SECRET)
    const uncaught = await uncaughtBy(async () => {
      once(fault, place)
      await ratelimit.resetUsedTokens(SECRET).catch((error: unknown) => {
        expect(error).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
      })
    })
    expect(uncaught).toEqual([])
    const isDone = place > 0 || fault === 'cut after'
    await expect
      .poll(() => before.getRemaining(SECRET))
      .toMatchObject({ remaining: isDone ? 10 : 8, limit: 10 })
  },
)

test('a burst of which some statements are cut: granted <= used <= granted + unknown, for each key', async () => {
  const opened = openPool(network.url)
  const prefix = newPrefix('burst')
  const ratelimit = limiterOn(opened, prefix)
  const outcomes = new Map(Array.from({ length: 400 }, (_, i) => [`key ${i}`, [] as Outcome[]]))
  let requests = 0
  network.proxy.fault = () =>
    ++requests % 5 === 0 ? (requests % 2 === 0 ? 'cut before' : 'cut after') : 'pass'
  const uncaught = await uncaughtBy(async () => {
    for (let round = 0; round < 5; round++) {
      await Promise.all(
        [...outcomes].map(async ([key, told]) => told.push(await outcomeOf(ratelimit.limit(key)))),
      )
    }
  })
  expect(uncaught).toEqual([])
  const all = [...outcomes.values()].flat()
  expect(count(all, 'OUTCOME_UNKNOWN')).toBeGreaterThan(0)
  expect(count(all, 'granted')).toBeGreaterThan(0)
  for (const [key, told] of outcomes) expectExact(told, await usedOf(database, prefix, key))
  network.proxy.fault = () => 'pass'
  await recovers(() => ratelimit.limit('key 0'))
  await expectQuiet(opened)
})

describe('limitAll', () => {
  const faults = ['cut before', 'cut after', 'stall before', 'stall after'] as const
  test.each(faults)('%s: the outcome is unknown, and all is charged or nothing', async (fault) => {
    const opened = openPool(network.url, IMPATIENT)
    const prefix = newPrefix(`all ${fault}`)
    const ratelimit = limiterOn(opened, prefix)
    const keys = [SECRET, 'other']
    for (const key of keys) await ratelimit.limit(key)
    const used = () => Promise.all(keys.map((key) => usedOf(database, prefix, key)))
    let outcome = ''
    const uncaught = await uncaughtBy(async () => {
      once(fault, 0)
      outcome = await outcomeOf(limitAll(keys.map((key) => ({ ratelimit, key }))))
    })
    const count = fault.endsWith('after') ? 2 : 1
    expect(outcome).toBe('OUTCOME_UNKNOWN')
    await expect.poll(used).toEqual([count, count])
    // The rows are free again, and the pool has all of its connections.
    for (const key of keys) await recovers(() => ratelimit.limit(key))
    expect(await used()).toEqual([count + 1, count + 1])
    await expectQuiet(opened)
    expect(uncaught).toEqual([])
  })
})

describe('a call with once', () => {
  const faults = ['cut before', 'cut after', 'stall before', 'stall after'] as const

  test.each(faults)('%s: repeated until the outcome is known, it is charged once', async (fault) => {
    const opened = openPool(network.url, IMPATIENT)
    const prefix = newPrefix(`once ${fault}`)
    const ratelimit = limiterOn(opened, prefix)
    await ratelimit.limit(SECRET)
    for (const [place, id] of ['one', 'two'].entries()) {
      const call = () => ratelimit.limit(SECRET, { once: { id, for: '1d' } })
      once(fault)
      expect(await outcomeOf(call())).toBe('OUTCOME_UNKNOWN')
      const answer = await call()
      expect('repeated' in answer).toBe(fault.endsWith('after'))
      expect(await usedOf(database, prefix, SECRET)).toBe(2 + place)
      expect(await call()).toHaveProperty('repeated')
    }
    await expectQuiet(opened)
  })
})

test('no server listens: UNREACHABLE, and later calls succeed', async () => {
  const opened = openPool(network.url)
  const ratelimit = limiterOn(opened, newPrefix('refused'))
  await ratelimit.limit(SECRET)
  await network.proxy.welcome('refuse')
  await expect.poll(() => opened.pool.totalCount).toBe(0)
  expect(await outcomeOf(ratelimit.limit(SECRET))).toBe('UNREACHABLE')
  expect(await outcomeOf(limitAll([{ ratelimit, key: SECRET }]))).toBe('UNREACHABLE')
  await network.proxy.welcome('accept')
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
  await expectQuiet(opened)
})

test('a connection that breaks while it is made: UNREACHABLE', async () => {
  const opened = openPool(network.url)
  const ratelimit = limiterOn(opened, newPrefix('reset'))
  await network.proxy.welcome('reset')
  const error = await errorOf(ratelimit.limit(SECRET))
  expect(error.code).toBe('UNREACHABLE')
})

test('statements that never end, on a driver that never gives up: the limiter goes on without them', async () => {
  // Only time that the test lets pass can end a call, so a busy machine changes nothing.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  const opened = openPool(network.url, { max: 10 })
  const prefix = newPrefix('forever')
  const common = { db: opened.db, limiter, prefix, cleanupProbability: 0 }
  const ratelimit = new Ratelimit({ ...common, timeout: 500, connections: 1 })
  const call = () => outcomeOf(ratelimit.limit(SECRET))
  const timedOut = async (outcome: Promise<Outcome>) => {
    await vi.advanceTimersByTimeAsync(500)
    return outcome
  }
  const stalled = async (fault: 'stall before' | 'stall after') => {
    const isMet = once(fault)
    const outcome = call()
    await expect.poll(isMet).toBe(true)
    return timedOut(outcome)
  }
  expect(await call()).toBe('granted')
  expect(await stalled('stall after')).toBe('OUTCOME_UNKNOWN')
  await expect.poll(() => usedOf(database, prefix, SECRET)).toBe(2)
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 97 })
  // The last call had the place of the first lost statement. The second one frees its place two seconds later.
  expect(await stalled('stall before')).toBe('OUTCOME_UNKNOWN')
  expect(await timedOut(call())).toBe('TIMEOUT')
  await vi.advanceTimersByTimeAsync(1000)
  const outcomes = await Promise.all(Array.from({ length: 20 }, call))
  expect(count(outcomes, 'granted')).toBe(20)
  expect(await usedOf(database, prefix, SECRET)).toBe(23)
  vi.useRealTimers()
  network.proxy.cutAll()
  await expectQuiet(opened)
})

// The pool's second message for it is not known: 'Connection terminated due to connection timeout'.
test('a server that does not answer to a new connection: UNREACHABLE after the connect time-out', async () => {
  const opened = openPool(network.url, { connectionTimeoutMillis: 200 })
  const ratelimit = limiterOn(opened, newPrefix('silent'))
  network.proxy.fault = () => 'stall before'
  expect(await outcomeOf(ratelimit.limit(SECRET))).toBe('UNREACHABLE')
})

test('connections whose server is gone silently fail by the time-out, once each', async () => {
  const opened = openPool(network.url, { ...IMPATIENT, max: 2 })
  const ratelimit = new Ratelimit({
    db: opened.db,
    limiter,
    prefix: newPrefix('half open'),
    cleanupProbability: 0,
  })
  await ratelimit.limit(SECRET)
  network.proxy.halfOpenAll()
  expect(await outcomeOf(ratelimit.limit(SECRET))).toBe('OUTCOME_UNKNOWN')
  expect(await ratelimit.limit(SECRET)).toMatchObject({ success: true, remaining: 98 })
  await expectQuiet(opened)
})
