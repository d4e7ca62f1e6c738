import { afterEach, expect, test, vi } from 'vitest'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { randomFrom } from '../../support/random.ts'
import { useFakeTime } from '../../support/timers.ts'
import { pause, virtualTime } from '../../support/virtual-time.ts'

// How large a part of the time slots are in use while workers wait for them. Statements run at once on the real
// server, but each takes a millisecond of a virtual time.

const database = useDatabase()
useFakeTime()
afterEach(() => {
  vi.useRealTimers()
  vi.restoreAllMocks()
})

/** How long the work under a lease takes. */
const WORK_MS = 15

interface Shape {
  readonly slots: number
  readonly processes: number
  /** In each process. */
  readonly workers: number
  readonly ms: number
}

async function work({ slots, processes, workers, ms }: Shape) {
  vi.spyOn(Math, 'random').mockImplementation(randomFrom(1))
  const { connect, passUntil } = await virtualTime(database)
  const endsAt = performance.now() + ms
  let busyMs = 0
  let longestMs = 0
  const worker = async (jobs: Semaphore) => {
    for (let from = performance.now(); from < endsAt; from = performance.now()) {
      const lease = allowed(await jobs.acquire('org', { timeout: '1h' }))
      const at = performance.now()
      longestMs = Math.max(longestMs, at - from)
      busyMs += Math.max(0, Math.min(WORK_MS, endsAt - at))
      await pause(WORK_MS)
      await lease.release()
    }
  }
  const process = () => {
    const prefix = `${slots} slots, ${processes} processes of ${workers}`
    const common = { db: connect(4), prefix, timeout: false, cleanupProbability: 0 } as const
    return new Semaphore({ ...common, limit: slots, lease: '1h' })
  }
  let isOver = false
  const all = Array.from({ length: processes }, process).flatMap((jobs) =>
    Array.from({ length: workers }, () => worker(jobs)),
  )
  const working = Promise.all(all).finally(() => {
    isOver = true
  })
  working.catch(() => {})
  while (!isOver) await passUntil(performance.now() + 1)
  await working
  return { busy: busyMs / ms / slots, longestMs }
}

test.each([
  [5, 5],
  [6, 5],
  [24, 5],
  [64, 20],
  [2, 1],
])('%i workers of a process keep %i slots busy', async (workers, slots) => {
  const { busy, longestMs } = await work({ slots, processes: 1, workers, ms: 300 })
  expect(busy).toBeGreaterThan(0.7)
  // Each has its turn: it waits for those before it.
  expect(longestMs).toBeLessThan(Math.ceil(workers / slots) * 2 * WORK_MS)
})

test.each([
  [6, 5],
  [2, 1],
])('%i workers in each of four processes keep %i slots busy, and all have their turn', async (...args) => {
  const [workers, slots] = args
  const { busy, longestMs } = await work({ slots, processes: 4, workers, ms: 800 })
  expect(busy).toBeGreaterThan(0.5)
  expect(longestMs).toBeLessThan(600)
})
