import { resolve } from 'node:path'
import { vi } from 'vitest'

const SOURCE = resolve('src')

const { setTimeout: setReal, clearTimeout: clearReal } = globalThis

/** Where the package set each timer that has neither ended nor been cleared. */
const places = new Map<unknown, string>()

/**
 * Gives the test the timers and the monotonic clock, until `vi.useRealTimers()`. `ownTimers` says which timers
 * the package has set since then.
 *
 * Drivers and PGlite keep the real timers. A PGlite that an earlier file has left may set one each millisecond,
 * and a month of the test's time has too many of them.
 */
export function fakeTime(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  places.clear()
  const { setTimeout: set, clearTimeout: clear } = globalThis
  const setting = (work: (...values: unknown[]) => void, ms?: number, ...values: unknown[]) => {
    const ended = () => {
      places.delete(timer)
      work(...values)
    }
    const [, , caller = ''] = new Error('Who sets it').stack?.split('\n') ?? []
    if (caller.includes('node_modules')) return setReal(work, ms, ...values)
    const timer = set(ended, ms)
    // One for the whole process, which may have been set before.
    if (caller.includes(SOURCE) && !caller.includes('long-waits')) places.set(timer, caller.trim())
    return timer
  }
  const clearing = (timer: Parameters<typeof clear>[0]) => {
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
 * files have left in the process do not count.
 */
export function ownTimers(): readonly string[] {
  return [...places.values()]
}
