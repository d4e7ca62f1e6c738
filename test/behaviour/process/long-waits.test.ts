import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { type Database, Ratelimit } from '../../../src/index.ts'
import { LongWaits, watchWait } from '../../../src/runtime/long-waits.ts'
import { useWarnings } from '../../support/warnings.ts'

// In development, a call that never ends is told of.

const warn = useWarnings()
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
afterEach(() => {
  vi.restoreAllMocks()
  vi.useRealTimers()
})

test('what takes three seconds is warned of, once in the process, and what ends before is not', () => {
  const waits = new LongWaits()
  const quick = waits.begin()
  vi.advanceTimersByTime(2_000)
  waits.begin()
  waits.end(quick)
  expect(vi.getTimerCount()).toBe(1)
  vi.advanceTimersByTime(2_999)
  expect(warn).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  waits.begin()
  vi.advanceTimersByTime(10_000)
  expect(warn.mock.calls).toEqual([[expect.stringMatching(/LONG_WAIT.* tx\. See docs\/transactions\.md/)]])
})

test('one timer serves all, and none is left when nothing waits', () => {
  const waits = new LongWaits()
  for (let i = 0; i < 100; i++) waits.end(waits.begin())
  expect(vi.getTimerCount()).toBe(1)
  vi.advanceTimersByTime(3_000)
  expect(vi.getTimerCount()).toBe(0)
})

test('it keeps no process alive', () => {
  const timers = vi.spyOn(globalThis, 'setTimeout')
  new LongWaits().begin()
  expect(timers.mock.results.map(({ value }) => value.hasRef())).toEqual([false])
})

/** As a pool without a free connection. */
const stuck: Database = {
  execute: () => new Promise(() => {}),
  transaction: () => new Promise(() => {}),
  refreshMaterializedView: undefined,
}
const transaction: Database = { ...stuck, rollback: undefined }

const calls: Readonly<Record<string, (ratelimit: Ratelimit, tx?: Database) => Promise<unknown>>> = {
  limit: (ratelimit, tx) => ratelimit.limit('key', { tx }),
  getRemaining: (ratelimit, tx) => ratelimit.getRemaining('key', { tx }),
  reserve: (ratelimit, tx) => ratelimit.reserve('key', { tx }),
  resetUsedTokens: (ratelimit, tx) => ratelimit.resetUsedTokens('key', { tx }),
  limitAll: (ratelimit, tx) => Ratelimit.limitAll([{ ratelimit, key: 'key' }], { tx }),
}

/** Leaves the waits of this process, which other files use too, as they are. */
function spyOnWaits() {
  vi.spyOn(LongWaits.prototype, 'end').mockReturnValue()
  return vi.spyOn(LongWaits.prototype, 'begin').mockReturnValue({ since: 0 })
}

test.each(Object.entries(calls))('%s is watched outside of a transaction', async (_name, call) => {
  const limiter = Ratelimit.fixedWindow(5, '1m')
  const begin = spyOnWaits()
  for (const coalesce of [true, false]) {
    begin.mockClear()
    const ratelimit = new Ratelimit({ db: stuck, limiter, prefix: 'stuck', coalesce })
    void call(ratelimit)
    await vi.waitFor(() => expect(begin).toHaveBeenCalledTimes(1))
  }
})

test('and its wait ends with it, however it ends', async () => {
  const begin = spyOnWaits()
  await watchWait(() => Promise.resolve())
  await watchWait(() => Promise.reject(new Error('away'))).catch(() => {})
  const waits = begin.mock.results.map(({ value }) => [value])
  expect(vi.mocked(LongWaits.prototype.end).mock.calls).toEqual(waits)
  expect(waits).toHaveLength(2)
})

test('in a transaction of the caller nothing is watched: it waits as long as the caller lets it', async () => {
  const limiter = Ratelimit.fixedWindow(5, '1m')
  const begin = spyOnWaits()
  const execute = vi.spyOn(transaction, 'execute')
  for (const call of Object.values(calls)) {
    execute.mockClear()
    void call(new Ratelimit({ db: stuck, limiter, prefix: 'stuck' }), transaction)
    await vi.waitFor(() => expect(execute).toHaveBeenCalledTimes(1))
  }
  expect(begin).not.toHaveBeenCalled()
})

test('in production nothing is watched', async () => {
  vi.stubEnv('NODE_ENV', 'production')
  // A name of its own makes it a module of its own, which reads the environment now.
  const name: string = '../../../src/runtime/long-waits.ts?production'
  const inProduction = (await import(name)) as typeof import('../../../src/runtime/long-waits.ts')
  vi.unstubAllEnvs()
  const begin = vi.spyOn(inProduction.LongWaits.prototype, 'begin')
  expect(inProduction.LongWaits).not.toBe(LongWaits)
  expect(await inProduction.watchWait(() => Promise.resolve(5))).toBe(5)
  expect(begin).not.toHaveBeenCalled()
})
