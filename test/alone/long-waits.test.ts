import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { LongWaits } from '../../src/runtime/long-waits.ts'
import { useWarnings } from '../support/warnings.ts'

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
