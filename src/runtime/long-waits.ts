import { doAfter } from '../base/deadlines.ts'
import { warnOnce } from '../base/warn.ts'

/** Far longer than a statement takes on a busy database. */
const LONG_MS = 3_000

/** Does work that calls wait for outside of the caller's transactions. */
export type Watch = <T>(work: () => Promise<T>) => Promise<T>

/**
 * Warns once if work takes too long. Usually it is called inside a transaction and waits for a row or the
 * connection of that transaction, which cannot end before the call gives up.
 *
 * @param isShared Whether all work shares a timer, because one for each costs too much. In Workers it would end
 * with the request that set it.
 */
export function watchFor(prefix: string, isShared: boolean): Watch {
  if (!isShared) return (work) => work().finally(doAfter(LONG_MS, () => warn(prefix)))
  /** When the work began. The oldest comes first. */
  const begun = new Set<{ readonly atMs: number }>()
  let hasTimer = false
  const lookIn = (ms: number): void => {
    hasTimer = true
    doAfter(ms, look)
  }
  const look = (): void => {
    hasTimer = false
    const [oldest] = begun
    if (!oldest) return
    const leftMs = oldest.atMs + LONG_MS - performance.now()
    if (leftMs > 0) lookIn(Math.ceil(leftMs))
    else warn(prefix)
  }
  return async (work) => {
    const own = { atMs: performance.now() }
    begun.add(own)
    if (!hasTimer) lookIn(LONG_MS)
    try {
      return await work()
    } finally {
      begun.delete(own)
    }
  }
}

function warn(prefix: string): void {
  warnOnce(
    'LONG_WAIT',
    `A call of the limiter with the prefix ${JSON.stringify(prefix)} has waited for ${LONG_MS / 1000} seconds ` +
      'outside of your transactions, for a connection or for a row that a transaction holds. If it is inside of that ' +
      'transaction, it waits in vain: give it the transaction as tx. See docs/transactions.md, "A forgotten tx".',
  )
}
