import { warnOnce } from '../base/warn.ts'

/** Far longer than a statement takes on a busy database. */
const LONG_MS = 3_000

/** A statement or transaction of this package that is under way outside of the caller's transactions. */
interface Wait {
  readonly since: number
}

/**
 * Warns in development if a call waits for long. Usually it is called inside a transaction and waits for a row
 * or the connection of that transaction. Then neither the call nor the transaction ever ends.
 *
 * All waits share one timer, which does not keep the process alive.
 */
class LongWaits {
  /** The oldest first. */
  readonly #waits = new Set<Wait>()
  #timer: ReturnType<typeof setTimeout> | undefined

  begin(): Wait {
    const wait = { since: performance.now() }
    this.#waits.add(wait)
    if (!this.#timer) this.#lookIn(LONG_MS)
    return wait
  }

  end(wait: Wait): void {
    this.#waits.delete(wait)
  }

  #lookIn(ms: number): void {
    this.#timer = setTimeout(() => this.#look(), ms)
    // In some runtimes the timer is a number.
    this.#timer.unref?.()
  }

  #look(): void {
    this.#timer = undefined
    const [oldest] = this.#waits
    if (!oldest) return
    const leftMs = oldest.since + LONG_MS - performance.now()
    if (leftMs > 0) this.#lookIn(Math.ceil(leftMs))
    else warn()
  }
}

function warn(): void {
  warnOnce(
    'LONG_WAIT',
    `A call outside of your transactions has waited for ${LONG_MS / 1000} seconds, for a connection or for a row that a ` +
      'transaction holds. If it is inside of that transaction, it waits for ever: give it the transaction as tx. ' +
      'See docs/transactions.md, "A forgotten tx".',
  )
}

/** The waits of this process; undefined in production. */
const waits = globalThis.process?.env?.['NODE_ENV'] === 'production' ? undefined : new LongWaits()

/** Warns in development if the work takes too long. */
export function watchWait<T>(work: () => Promise<T>): Promise<T> {
  if (!waits) return work()
  const wait = waits.begin()
  return work().finally(() => waits.end(wait))
}
