import { doAfter } from '../base/deadlines.ts'
import { warnOnce } from '../base/warn.ts'

/** Far longer than a statement takes on a busy database. */
const LONG_MS = 3_000

/**
 * Warns once if the work takes too long. Usually it is called inside a transaction and waits for a row or the
 * connection of that transaction, which cannot end before the call gives up.
 */
export function watchWait<T>(prefix: string, work: () => Promise<T>): Promise<T> {
  return work().finally(doAfter(LONG_MS, () => warn(prefix)))
}

function warn(prefix: string): void {
  warnOnce(
    'LONG_WAIT',
    `A call of the limiter with the prefix ${JSON.stringify(prefix)} has waited for ${LONG_MS / 1000} seconds ` +
      'outside of your transactions, for a connection or for a row that a transaction holds. If it is inside of that ' +
      'transaction, it waits in vain: give it the transaction as tx. See docs/transactions.md, "A forgotten tx".',
  )
}
