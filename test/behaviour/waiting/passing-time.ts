import { channel } from 'node:diagnostics_channel'
import { isDeepStrictEqual } from 'node:util'
import { afterEach, beforeAll, beforeEach, expect, vi } from 'vitest'
import type { Database } from '../../../src/index.ts'
import { type Db, hasServer, useDatabase } from '../../support/databases.ts'
import { gate } from '../../support/gate.ts'
import { fakeTime, useFakeTime } from '../../support/timers.ts'

// The time of tests in which calls wait. It passes only while no statement is under way.

export const database: ReturnType<typeof useDatabase> = useDatabase()
const start = Date.UTC(2026, 0, 1)
// The limiter's clock follows the monotonic one, which is the test's.
export const clock = (): Date => new Date(start + performance.now())
// Connections are made before time is faked: making one takes timers.
beforeAll(async () => {
  if (hasServer()) await makeConnections(database.db, 4)
})
beforeEach(fakeTime)
useFakeTime()

export async function makeConnections(db: Db, connections: number): Promise<void> {
  await Promise.all(Array.from({ length: connections }, () => db.execute('select pg_sleep(0.05)')))
}

/** The statements until now, and when the last one was sent. */
export const sent: { statements: number; at: number } = { statements: 0, at: 0 }
let underWay = 0
/** Counts the statements: time passes for a call only while none is under way. */
export function counting(db: Db): Database {
  return {
    transaction: () => Promise.reject(new Error('no transaction is needed')),
    refreshMaterializedView: undefined,
    execute: async (query) => {
      sent.statements++
      sent.at = performance.now()
      underWay++
      try {
        return await db.execute(query)
      } finally {
        underWay--
      }
    },
  }
}

/** The longest that a timer of Node lasts. It takes a longer one for 1 ms. */
const MAX_TIMER_MS = 2 ** 31 - 1

/**
 * Lets time pass for waiting calls, in one step to the end of each wait. Steps from timer to timer would stop
 * at those of other code, and one of them may be set again each millisecond.
 */
export async function letWait<T>(call: Promise<T>): Promise<T> {
  let done = false
  const ended = () => {
    done = true
  }
  call.then(ended, ended)
  while (!done) {
    await new Promise(setImmediate)
    if (underWay > 0) continue
    const leftMs = Math.min(...waitEnds.map((end) => end - performance.now()).filter((ms) => ms > 0))
    if (leftMs < Number.POSITIVE_INFINITY) vi.advanceTimersByTime(Math.min(leftMs, MAX_TIMER_MS))
  }
  return call
}

/** When the waits that have begun are over. */
export const waitEnds: number[] = []
const waits = channel('drizzle-ratelimit:wait')
const onWait = (wait: unknown) => void waitEnds.push(performance.now() + (wait as { waitMs: number }).waitMs)
beforeEach(() => {
  waitEnds.length = 0
  waits.subscribe(onWait)
})
afterEach(() => void waits.unsubscribe(onWait))

/** Holds the answers that come while it is closed. */
export function holding(db: Database): { readonly db: Database; close(): void; open(): void } {
  let held: ReturnType<typeof gate> | undefined
  const execute: Database['execute'] = async (query) => {
    const answer = await db.execute(query)
    await held?.opened
    return answer
  }
  return {
    db: { ...db, execute },
    close: () => {
      held = gate()
    },
    open: () => held?.open(),
  }
}

/** Waits without letting the test's time pass. */
export async function untilEqual<T>(look: () => Promise<T>, expected: T): Promise<void> {
  const until = Date.now() + 10_000
  for (;;) {
    const found = await look()
    if (isDeepStrictEqual(found, expected)) return
    if (Date.now() > until) expect(found).toEqual(expected)
  }
}
