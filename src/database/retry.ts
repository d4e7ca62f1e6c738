import { RatelimitError, type RatelimitErrorCode } from '../errors.ts'
import type { Database } from './database.ts'
import { toRatelimitError } from './database-error.ts'

/** Postgres has rolled these back: nothing was charged, and another try may succeed. */
const PASSING: ReadonlySet<RatelimitErrorCode> = new Set<RatelimitErrorCode>([
  'SERIALIZATION_FAILURE',
  'DEADLOCK',
])

const MOST_TRIES = 10

/**
 * Tries again what lost against another transaction; after a random pause, so that the two do not meet again.
 */
export async function retrying<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof RatelimitError && PASSING.has(error.code)) || tries === MOST_TRIES) throw error
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 2 ** tries))
    }
  }
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
