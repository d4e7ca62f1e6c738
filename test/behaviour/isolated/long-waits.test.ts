import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Database, Ratelimit } from '../../../src/index.ts'

// The process warns once of a call that does not end. So each test loads the package again.

const warn = vi.fn<typeof console.warn>()

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  vi.spyOn(console, 'warn').mockImplementation(warn)
})
afterEach(() => {
  warn.mockClear()
  vi.restoreAllMocks()
  vi.unstubAllEnvs()
  vi.useRealTimers()
})

type Package = typeof import('../../../src/index.ts')

async function newPackage(): Promise<Package> {
  vi.resetModules()
  return import('../../../src/index.ts')
}

/** A pool without a free connection. */
function fullPool() {
  const waiting: ((error: Error) => void)[] = []
  let failed = 0
  const wait = () => new Promise<never>((_, reject) => waiting.push(reject))
  const db: Database = { execute: wait, transaction: wait, refreshMaterializedView: undefined }
  return {
    db,
    tx: { ...db, rollback: undefined } satisfies Database,
    /** Resolves when this many statements wait for a connection. The first call loads its code before. */
    until: async (count: number) => {
      while (waiting.length < count) await new Promise(setImmediate)
    },
    /** Ends the first statement that still waits. */
    failNext: () => waiting[failed++]?.(Object.assign(new Error('no table'), { code: '42P01' })),
  }
}

type Call = (ratelimit: Ratelimit, all: Package['limitAll'], tx?: Database) => Promise<unknown>

const calls: Readonly<Record<string, Call>> = {
  limit: (ratelimit, _, tx) => ratelimit.limit('key', { tx }),
  getRemaining: (ratelimit, _, tx) => ratelimit.getRemaining('key', { tx }),
  reserve: (ratelimit, _, tx) => ratelimit.reserve('key', { tx }),
  resetUsedTokens: (ratelimit, _, tx) => ratelimit.resetUsedTokens('key', { tx }),
  limitAll: (ratelimit, all, tx) => all([{ ratelimit, key: 'key' }], { tx }),
}

async function limiterOn(db: Database, coalesce = true) {
  const { limitAll, Ratelimit } = await newPackage()
  const limiter = Ratelimit.fixedWindow(5, '1m')
  return {
    limitAll,
    // Without a timeout, the timers are those that warn.
    ratelimit: new Ratelimit({
      db,
      limiter,
      prefix: 'stuck',
      coalesce,
      cleanupProbability: 0,
      timeout: false,
    }),
  }
}

const WARNING = [expect.stringMatching(/LONG_WAIT.*"stuck".* tx\. See docs\/transactions\.md/)]
const cases = Object.entries(calls).flatMap(([name, call]) =>
  [true, false].map((coalesce) => ({ name, call, coalesce })),
)

test.each(cases)('$name warns after three seconds, coalesce: $coalesce', async ({ call, coalesce }) => {
  const { db, until } = fullPool()
  const { limitAll, ratelimit } = await limiterOn(db, coalesce)
  call(ratelimit, limitAll)
  await until(1)
  vi.advanceTimersByTime(2_999)
  expect(warn).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  expect(warn.mock.calls).toEqual([WARNING])
})

test.each([true, false])(
  'a call that ends earlier causes no warning, and the process warns once, coalesce: %s',
  async (coalesce) => {
    const { db, until, failNext } = fullPool()
    const { ratelimit } = await limiterOn(db, coalesce)
    const quick = ratelimit.limit('one').catch(() => {})
    await until(1)
    vi.advanceTimersByTime(2_000)
    ratelimit.limit('two')
    await until(2)
    failNext()
    await quick
    vi.advanceTimersByTime(2_999)
    expect(warn).not.toHaveBeenCalled()
    vi.advanceTimersByTime(1)
    expect(warn).toHaveBeenCalledTimes(1)
    ratelimit.limit('three')
    await until(3)
    vi.advanceTimersByTime(10_000)
    expect(warn).toHaveBeenCalledTimes(1)
  },
)

test('calls share a timer, which keeps no process alive, and is not set again when none waits', async () => {
  const timers = vi.spyOn(globalThis, 'setTimeout')
  const { db, until, failNext } = fullPool()
  const { ratelimit } = await limiterOn(db)
  const first = ratelimit.limit('first').catch(() => {})
  await until(1)
  vi.advanceTimersByTime(1_000)
  const second = ratelimit.limit('second').catch(() => {})
  await until(2)
  expect(vi.getTimerCount()).toBe(1)
  for (const { value } of timers.mock.results) expect(value.hasRef()).toBe(false)
  failNext()
  failNext()
  await Promise.all([first, second])
  vi.advanceTimersByTime(3_000)
  expect(vi.getTimerCount()).toBe(0)
  expect(warn).not.toHaveBeenCalled()
})

test('without coalesce, as in Workers, a call has a timer of its own, which ends with it', async () => {
  const { db, until, failNext } = fullPool()
  const { ratelimit } = await limiterOn(db, false)
  const ended = ratelimit.limit('ended').catch(() => {})
  await until(1)
  ratelimit.limit('waiting')
  await until(2)
  expect(vi.getTimerCount()).toBe(2)
  failNext()
  await ended
  expect(vi.getTimerCount()).toBe(1)
})

test('a process that was busy for long has not waited for the answer that was there', async () => {
  const { db, until, failNext } = fullPool()
  const { ratelimit } = await limiterOn(db)
  const answer = ratelimit.limit('key').catch(() => {})
  await until(1)
  const clock = performance.now
  vi.spyOn(performance, 'now').mockImplementation(() => clock.call(performance) + 3_100)
  // The timer that is due runs before the process reads what has arrived.
  vi.advanceTimersToNextTimer()
  failNext()
  await answer
  expect(warn).not.toHaveBeenCalled()
})

test.each(Object.entries(calls))(
  "%s waits in the caller's transaction without a warning",
  async (_, call) => {
    const { db, tx, until } = fullPool()
    const { limitAll, ratelimit } = await limiterOn(db)
    call(ratelimit, limitAll, tx)
    await until(1)
    vi.advanceTimersByTime(10_000)
    expect(warn).not.toHaveBeenCalled()
  },
)

test('in production a call warns too, once', async () => {
  vi.stubEnv('NODE_ENV', 'production')
  const { db, until } = fullPool()
  const { ratelimit } = await limiterOn(db)
  ratelimit.limit('key')
  await until(1)
  vi.advanceTimersByTime(3_000)
  expect(warn.mock.calls).toEqual([WARNING])
  ratelimit.limit('other')
  vi.advanceTimersByTime(10_000)
  expect(warn).toHaveBeenCalledTimes(1)
})
