import { RatelimitError, type RatelimitErrorCode } from '../errors.ts'
import type { Database } from './database.ts'
import { toRatelimitError } from './database-error.ts'

/** Postgres has rolled these back: nothing was charged, and another try may succeed. */
const TRANSIENT: ReadonlySet<RatelimitErrorCode> = new Set<RatelimitErrorCode>([
  'SERIALIZATION_FAILURE',
  'DEADLOCK',
])

const MAX_TRIES = 10

/** Runs the work, and again if it lost against another transaction. */
export function retrying<T>(work: () => Promise<T>): Promise<T> {
  return work().catch((error) => tryAgain(error, work))
}

/**
 * Tries again the work that has just failed, if it lost against another transaction; after a random pause, so
 * that the two do not meet again. Otherwise it throws the error.
 */
export async function tryAgain<T>(error: unknown, work: () => Promise<T>): Promise<T> {
  let last = error
  for (let tries = 1; tries < MAX_TRIES; tries++) {
    if (!(last instanceof RatelimitError && TRANSIENT.has(last.code))) break
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 2 ** tries))
    try {
      return await work()
    } catch (again) {
      last = again
    }
  }
  throw last
}

/** Runs the work in a transaction of its own, from the start when it lost against another. */
export function inTransaction<T>(db: Database, work: (tx: Database) => Promise<T>): Promise<T> {
  return retrying(async () => {
    let begun = false
    try {
      return await db.transaction((tx) => {
        begun = true
        return work(tx)
      })
    } catch (reason) {
      const error = toRatelimitError(reason)
      if (begun || error.code !== 'OUTCOME_UNKNOWN') throw error
      throw new RatelimitError(
        'UNREACHABLE',
        'No transaction could be begun, and nothing was charged. limitAll needs a driver that has interactive transactions, or a tx.',
        { cause: error.cause },
      )
    }
  })
}
