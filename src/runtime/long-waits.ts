import { doAfter } from '../base/deadlines.ts'
import { warnOnce } from '../base/warn.ts'

/** Far longer than a statement takes on a busy database. */
const LONG_MS = 3_000

function warn(): void {
  warnOnce(
    'LONG_WAIT',
    `A call outside of your transactions has waited for ${LONG_MS / 1000} seconds, for a connection or for a row that a ` +
      'transaction holds. If it is inside of that transaction, it waits for ever: give it the transaction as tx. ' +
      'See docs/transactions.md, "A forgotten tx".',
  )
}

const isWatching = globalThis.process?.env?.['NODE_ENV'] !== 'production'

/**
 * Warns in development if the work takes too long. Usually it is called inside a transaction and waits for a
 * row or the connection of that transaction. Then neither the call nor the transaction ever ends.
 */
export function watchWait<T>(work: () => Promise<T>): Promise<T> {
  return isWatching ? work().finally(doAfter(LONG_MS, warn)) : work()
}
