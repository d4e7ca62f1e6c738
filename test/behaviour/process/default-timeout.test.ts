import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { limitAll, Ratelimit, type RatelimitConfig, type RatelimitError } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import '../../support/loaded.ts'
import { fakeTime, ownTimers, useFakeTime } from '../../support/timers.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
useFakeTime()
const limiter = Ratelimit.fixedWindow(10, '1h')
let prefix = 0

// The timers are the test's; the driver keeps its own.
beforeEach(fakeTime)
afterEach(() => {
  vi.restoreAllMocks()
  vi.useRealTimers()
})

async function turns(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate)
}

/** A limiter on a database that does not answer, and what became of a call after a time. */
function stuck(config: Partial<RatelimitConfig> = {}) {
  const never = () => new Promise(() => {})
  const { db } = watch(database.db, never)
  const common = { db, limiter, prefix: `stuck ${++prefix}`, cleanupProbability: 0 }
  const ratelimit = new Ratelimit({ ...common, ...config } as RatelimitConfig)
  const after = async (ms: number, call: Promise<unknown>) => {
    const ended = call.then(
      () => 'answered',
      ({ code }: RatelimitError) => code,
    )
    await turns()
    await vi.advanceTimersByTimeAsync(ms)
    return Promise.race([ended, turns().then(() => 'waits')])
  }
  return { ratelimit, after, never }
}

type Call = (ratelimit: Ratelimit) => Promise<unknown>

const calls: Readonly<Record<string, Call>> = {
  limit: (ratelimit) => ratelimit.limit('key'),
  getRemaining: (ratelimit) => ratelimit.getRemaining('key'),
  limitAll: (ratelimit) => limitAll([{ ratelimit, key: 'key' }]),
  resetUsedTokens: (ratelimit) => ratelimit.resetUsedTokens('key'),
  cleanup: (ratelimit) => ratelimit.cleanup(),
  'blockUntilReady for long': (ratelimit) => ratelimit.blockUntilReady('key', '1h'),
}

for (const [name, call] of Object.entries(calls)) {
  test(`${name} ends after five seconds`, async () => {
    const { ratelimit, after } = stuck()
    const ended = call(ratelimit)
    expect(await after(4_999, ended)).toBe('waits')
    expect(await after(1, ended)).toMatch(/^(OUTCOME_UNKNOWN|TIMEOUT)$/)
  })
}

test('with timeout: false nothing ends a call', async () => {
  const { ratelimit, after } = stuck({ timeout: false })
  expect(await after(86_400_000, ratelimit.limit('key'))).toBe('waits')
})

test('in a transaction of the caller nothing ends a call', async () => {
  const { ratelimit, after, never } = stuck()
  await database.db.transaction(async (tx) => {
    const { db } = watch(tx, never)
    expect(await after(86_400_000, ratelimit.limit('key', { tx: db }))).toBe('waits')
  })
})

test('cleanup may take longer than the timeout, if each of its statements is in time', async () => {
  const gates: (() => void)[] = []
  const { db } = watch(database.db, () => new Promise<void>((resolve) => gates.push(resolve)))
  const ratelimit = new Ratelimit({ db, limiter, prefix: `slow ${++prefix}`, timeout: 1_000 })
  let statements = 0
  let hasEnded = false
  const cleaning = ratelimit.cleanup().finally(() => {
    hasEnded = true
  })
  cleaning.catch(() => {})
  while (!hasEnded) {
    await turns()
    vi.advanceTimersByTime(800)
    if (gates.length > 0) statements++
    gates.shift()?.()
  }
  expect(await cleaning).toBe(0)
  expect(statements).toBeGreaterThan(1)
})

test('calls that share a timer end after five seconds each, and leave none', async () => {
  const { ratelimit, after } = stuck()
  const first = ratelimit.limit('key')
  expect(await after(1_234, first)).toBe('waits')
  const second = ratelimit.limit('key')
  expect(await after(3_765, first)).toBe('waits')
  expect(await after(1, first)).toBe('OUTCOME_UNKNOWN')
  expect(await after(1_233, second)).toBe('waits')
  expect(await after(1, second)).toBe('OUTCOME_UNKNOWN')
  expect(ownTimers()).toEqual([])
})

test('a call that begins while the process is busy has five seconds too', async () => {
  const { ratelimit, after } = stuck()
  const early = ratelimit.limit('key')
  expect(await after(100, early)).toBe('waits')
  const clock = performance.now.bind(performance)
  // The task in which the second call begins takes ten seconds.
  vi.spyOn(performance, 'now').mockImplementation(() => clock() + 10_000)
  const late = ratelimit.limit('other')
  expect(await after(4_900, early)).toBe('OUTCOME_UNKNOWN')
  expect(await after(0, late)).toBe('waits')
  expect(await after(600, late)).toMatch(/^(OUTCOME_UNKNOWN|TIMEOUT)$/)
})

/** A limiter on a database that answers until it is `stuck`. */
function live(config: Partial<RatelimitConfig> = {}) {
  const state = { isStuck: false }
  const { db } = watch(database.db, () => (state.isStuck ? new Promise(() => {}) : undefined))
  const common = { db, limiter, prefix: `live ${++prefix}`, cleanupProbability: 0 }
  return { ratelimit: new Ratelimit({ ...common, ...config } as RatelimitConfig), state }
}

const CODE = { code: expect.stringMatching(/^(OUTCOME_UNKNOWN|TIMEOUT)$/) }

test('the timer keeps the process alive while a call waits, and at no other time', async () => {
  const { ratelimit, state } = live()
  await ratelimit.limit('key')
  expect(ownTimers()).toEqual([])
  state.isStuck = true
  vi.advanceTimersByTime(100)
  const ended = ratelimit.limit('key').catch(({ code }) => code)
  expect(ownTimers()).toHaveLength(1)
  await turns()
  await vi.advanceTimersByTimeAsync(5_000)
  expect(await ended).toMatch(/^(OUTCOME_UNKNOWN|TIMEOUT)$/)
  expect(ownTimers()).toEqual([])
  vi.advanceTimersByTime(5_000)
  expect(vi.getTimerCount()).toBe(0)
})

test('a limiter that was used before ends its calls by fake timers', async () => {
  vi.useRealTimers()
  const { ratelimit, state } = live()
  await ratelimit.limit('key')
  state.isStuck = true
  fakeTime()
  const ended = expect(ratelimit.limit('key')).rejects.toMatchObject(CODE)
  await turns()
  await vi.advanceTimersByTimeAsync(5_000)
  await ended
})

test('a limiter that was used under fake timers ends its calls by real ones', async () => {
  const { ratelimit, state } = live({ timeout: 50 })
  await ratelimit.limit('key')
  state.isStuck = true
  vi.useRealTimers()
  await expect(ratelimit.limit('key')).rejects.toMatchObject(CODE)
})
