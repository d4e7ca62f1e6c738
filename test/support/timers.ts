import { AsyncLocalStorage } from 'node:async_hooks'
import { resolve } from 'node:path'
import { afterAll, afterEach, aroundEach, vi } from 'vitest'

const SOURCE = resolve('src')

const { setTimeout: setReal, clearTimeout: clearReal } = globalThis

/** What a test has started knows its test. What earlier tests have left in the process does not. */
const tests = new AsyncLocalStorage<object>()

/** For a file whose tests may fake the time. It ends with each test. */
export function useFakeTime(): void {
  aroundEach((runTest) => tests.run({}, runTest))
  afterEach(() => void vi.useRealTimers())
  // As long as tests are known, each promise of the process costs more.
  afterAll(() => tests.disable())
}

/** Where the package set each timer that has neither ended nor been cleared. */
const places = new Map<ReturnType<typeof setTimeout>, string>()

/**
 * Gives the test the timers and the monotonic clock, until `vi.useRealTimers()`, in a file that calls
 * `useFakeTime`. `ownTimers` says which timers the package has set since then.
 *
 * Drivers and PGlite keep the real timers. A PGlite that an earlier file has left may set one each millisecond,
 * and a month of the test's time has too many of them.
 */
export function fakeTime(): void {
  const test = tests.getStore()
  if (!test) throw new Error('Call useFakeTime() at the top of the file.')
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  places.clear()
  const { setTimeout: set, clearTimeout: clear } = globalThis
  const setting = (work: (...values: unknown[]) => void, ms?: number, ...values: unknown[]) => {
    const ended = () => {
      places.delete(timer)
      work(...values)
    }
    const [, , caller = ''] = new Error('Who sets it').stack?.split('\n') ?? []
    if (tests.getStore() !== test || caller.includes('node_modules')) return setReal(work, ms, ...values)
    const timer = set(ended, ms)
    if (caller.includes(SOURCE)) places.set(timer, caller.trim())
    return timer
  }
  const clearing = (timer: ReturnType<typeof set>) => {
    places.delete(timer)
    clear(timer)
    clearReal(timer)
  }
  // Vitest puts the real ones back only if these have the properties of its fakes.
  globalThis.setTimeout = Object.assign(setting, set)
  globalThis.clearTimeout = Object.assign(clearing, clear)
}

/**
 * Where the package set the timers that have not ended. Those of drivers, of PGlite, and of what earlier test
 * files have left in the process do not count, nor does the one that warns of long waits.
 */
export function ownTimers(): readonly string[] {
  const own = [...places].filter(([timer, place]) => !place.includes('deadlines') || timer.hasRef())
  return own.map(([, place]) => place)
}
