import { waitsOf } from '../base/deadlines.ts'
import { warnOnce } from '../base/warn.ts'
import { RatelimitError } from '../errors.ts'

/** How many calls may wait. That is less than a second's work: with more, answers would come too late. */
const MAX_WAITING = 10_000

/** How many of them may be for one key, so that one client cannot take all the room. */
const MAX_OF_KEY = 1_000

/** How long a call counts where a runtime may cut off its request. Such a call never leaves by itself. */
const CUT_OFF_MS = 60_000

export interface WaitingCalls {
  calls: number
}

/**
 * The error for one more call, if `ofKey` calls of its key and `waiting` calls in all wait already. Undefined
 * if there is room.
 */
export function overload(ofKey: number, waiting: number): RatelimitError | undefined {
  const contended = ofKey >= MAX_OF_KEY
  if (!contended && waiting < MAX_WAITING) return undefined
  const calls = contended ? `${MAX_OF_KEY} calls of this key` : `${MAX_WAITING} calls`
  const message = `${calls} wait for the database already. This one was not sent.`
  return new RatelimitError('OVERLOADED', message, { contended })
}

interface RoomEntry {
  readonly key: string | undefined
  readonly at: number
}

/** Limits how many calls wait for the database outside of the queues. */
export class Room {
  readonly #cutsOff: boolean
  /** The oldest first. */
  readonly #waiting = new Set<RoomEntry>()
  readonly #ofKeys = new Map<string, number>()

  /** @param cutsOff Whether calls may be cut off. The oldest ones may then be gone. */
  constructor(cutsOff: boolean) {
    this.#cutsOff = cutsOff
  }

  /**
   * Lets a call in.
   *
   * @param key The key, if the call is for one key.
   * @returns A function to call when the call has ended.
   * @throws RatelimitError `OVERLOADED`
   */
  enter(key?: string): () => void {
    const now = this.#cutsOff ? performance.now() : 0
    const refusal = () => overload(this.#ofKeys.get(key ?? '') ?? 0, this.#waiting.size)
    if (refusal()) this.#forgetLost(now)
    const refused = refusal()
    if (refused) throw refused
    const entry = { key, at: now }
    this.#waiting.add(entry)
    this.#count(key, 1)
    return () => this.#leave(entry)
  }

  #leave(entry: RoomEntry): void {
    if (this.#waiting.delete(entry)) this.#count(entry.key, -1)
  }

  #count(key: string | undefined, more: number): void {
    if (key === undefined) return
    const calls = (this.#ofKeys.get(key) ?? 0) + more
    if (calls > 0) this.#ofKeys.set(key, calls)
    else this.#ofKeys.delete(key)
  }

  #forgetLost(now: number): void {
    for (const entry of this.#waiting) {
      if (now - entry.at < CUT_OFF_MS) break
      this.#leave(entry)
    }
  }
}

/** Far longer than a statement takes on a busy database. */
const LONG_MS = 3_000

/** Does work that calls wait for outside of the caller's transactions. */
export type Watch = <T>(work: () => Promise<T>) => Promise<T>

/**
 * Warns once if work takes too long. Usually it is called inside a transaction and waits for a row or the
 * connection of that transaction, which cannot end before the call gives up.
 *
 * @param isShared Whether all work shares a timer.
 */
export function watchFor(prefix: string, isShared: boolean): Watch {
  const begin = waitsOf(LONG_MS, isShared, false)
  const timed = { over: () => warnOfLongWait(prefix) }
  return (work) => {
    const wait = begin(timed)
    const stop = () => wait.stop()
    const done = work()
    done.then(stop, stop)
    return done
  }
}

function warnOfLongWait(prefix: string): void {
  warnOnce(
    'LONG_WAIT',
    `A call of the limiter with the prefix ${JSON.stringify(prefix)} has waited for 3 seconds, for a connection or ` +
      'a row. If its own transaction holds that, it waits in vain: give it the transaction as tx. See ' +
      'docs/transactions.md, "A forgotten tx".',
  )
}
