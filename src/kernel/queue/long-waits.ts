import { doAfter, waitsOf } from '../base/deadlines.ts'
import { warnOnce } from '../base/warn.ts'

/** Far longer than a statement takes on a busy database. */
const LONG_MS = 3_000

/** Does work that calls wait for outside of the caller's transactions. */
export type Watch = <T>(work: () => Promise<T>) => Promise<T>

/**
 * Warns once if work takes too long. Usually it is called inside a transaction and waits for a row or the
 * connection of that transaction, which cannot end before the call gives up.
 *
 * @param isShared Whether all work shares a timer, which has to be set again a few times.
 */
export function watchFor(prefix: string, isShared: boolean): Watch {
  const begin = waitsOf(LONG_MS, true, false)
  const timed = { over: () => warnOfLongWait(prefix) }
  return (work) => {
    const wait = isShared ? begin(timed) : { stop: doAfter(LONG_MS, timed.over) }
    const stop = () => wait.stop()
    const done = work()
    done.then(stop, stop)
    return done
  }
}

function warnOfLongWait(prefix: string): void {
  warnOnce(
    'LONG_WAIT',
    `A call of the limiter with the prefix ${JSON.stringify(prefix)} has waited for ${LONG_MS / 1000} seconds ` +
      'outside of your transactions, for a connection or for a row that a transaction holds. If it is inside of that ' +
      'transaction, it waits in vain: give it the transaction as tx. See docs/transactions.md, "A forgotten tx".',
  )
}
