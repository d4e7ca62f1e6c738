import type { SQL } from 'drizzle-orm'
import { vi } from 'vitest'
import type { Database } from '../../src/index.ts'
import { CLOCK_PATH, databaseClock } from './database-clock.ts'
import type { TestDatabase } from './databases.ts'
import { fakeTime } from './timers.ts'
import { watch } from './watch.ts'

/** How long a statement takes by the virtual time. */
const STATEMENT_MS = 1

export interface VirtualTime {
  /** Another pool on the database. Its statements run at once on the real server. */
  connect(max: number): Database
  /** Lets the time pass, and does all that is due, until then by the monotonic clock. */
  passUntil(ms: number): Promise<void>
}

/** Takes `ms` of the test's time. */
export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/**
 * A time that the speed of the machine does not change: it passes only while no statement is on its way, for
 * the timers of the package and of the test, and for the clock of the database. It lasts until
 * `vi.useRealTimers()`.
 */
export async function virtualTime(database: TestDatabase): Promise<VirtualTime> {
  const setClock = await databaseClock(database)
  const name = new URL(database.url).pathname.slice(1)
  await database.rows(`alter database ${name} set search_path = ${CLOCK_PATH}`)
  fakeTime()
  let onTheirWay = 0
  let setAt: number | undefined
  let isSet: Promise<unknown> = Promise.resolve()
  const run = async (db: Database, query: SQL) => {
    await pause(STATEMENT_MS)
    onTheirWay++
    const now = performance.now()
    if (now !== setAt) isSet = setClock(Math.floor(now))
    setAt = now
    try {
      await isSet
      return await db.execute(query)
    } finally {
      onTheirWay--
    }
  }
  /** Promises and drivers go on in the next turns of the process. */
  const settled = async () => {
    for (let turns = 0; turns < 3; turns++) {
      await new Promise(setImmediate)
      if (onTheirWay > 0) turns = 0
    }
  }
  return {
    connect: (max) => {
      const { db } = database.connect(max)
      return { ...watch(db).db, execute: (query) => run(db, query) }
    },
    passUntil: async (ms) => {
      await settled()
      while (performance.now() < ms) {
        vi.advanceTimersToNextTimer()
        await settled()
      }
    },
  }
}
