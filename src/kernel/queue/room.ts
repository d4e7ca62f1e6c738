import { RatelimitError } from '../errors.ts'

/** How many calls may wait. That is less than a second's work: with more, answers would come too late. */
const MAX_WAITING = 10_000

/** How many of them may be for one key, so that one client cannot take all the room. */
const MAX_OF_KEY = 1_000

/** How long a call counts where a runtime may cut off its request. Such a call never leaves by itself. */
const CUT_OFF_MS = 60_000

/** How many calls wait to be sent. */
export interface WaitingCalls {
  calls: number
}

/**
 * The error for one more call, if `ofKey` calls of its key and `waiting` calls in all wait already. Undefined
 * if there is room.
 */
export function overload(ofKey: number, waiting: number): RatelimitError | undefined {
  if (ofKey >= MAX_OF_KEY) {
    return new RatelimitError(
      'OVERLOADED',
      `${MAX_OF_KEY} calls of this key wait for the database already. This one was not sent.`,
      { contended: true },
    )
  }
  if (waiting < MAX_WAITING) return undefined
  return new RatelimitError(
    'OVERLOADED',
    `${MAX_WAITING} calls wait for the database already. This one was not sent.`,
  )
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
