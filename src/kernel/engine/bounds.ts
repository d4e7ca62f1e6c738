import type { Outcome } from '../answers/outcome.ts'
import { type Deadline, MAX_TIMER_MS, type Timed, waitsOf } from '../base/deadlines.ts'
import type { Database } from '../database/database.ts'
import { RatelimitError } from '../errors.ts'

/** When waits are over. */
export interface CallTime {
  readonly isOver: boolean
  /** Begins a wait, which is told when the time is over. */
  begin(timed: Timed): Pick<Deadline, 'stop'>
}

/** A length of time, which restarts for each wait. */
export class Timeout implements CallTime {
  readonly ms: number
  readonly isOver = false
  readonly #begin: (timed: Timed) => Deadline

  /** @param isShared Whether all waits share a timer. */
  constructor(ms: number, isShared = false) {
    this.ms = ms
    this.#begin = waitsOf(ms, isShared)
  }

  begin(timed: Timed): Pick<Deadline, 'stop'> {
    // No call takes weeks.
    if (this.ms > MAX_TIMER_MS) return NO_TIMER
    return this.#begin(timed)
  }
}

const NO_TIMER = { stop: () => {} }

/** Where a call runs: in a transaction, or alone. Alone, it may have begun its time already. */
export type At = Database | CallTime | undefined

/** Whether a call has begun its time. The other copy of the package may have, with a class of its own. */
export function isCallTime(at: At): at is CallTime {
  return typeof at === 'object' && at !== null && 'isOver' in at
}

/** When to stop waiting for a call. `Late` is the grant that may come after that. */
export interface Bounds<Late = Outcome> {
  /** When this time is over. */
  readonly time?: CallTime | undefined
  /** As soon as this signal aborts. */
  readonly signal?: AbortSignal | undefined
  /** Whether the time is the rest of a caller's wait. Its end says nothing about the database. */
  readonly isRest?: boolean | undefined
  /** Gets a grant that comes after the wait has ended, to give it back. It never rejects. */
  readonly giveBack?: (late: Late) => Promise<void>
}

/** The error of a call whose time is over. A look is never charged. */
export function timedOut(mayBeCharged: boolean, contended: boolean): RatelimitError {
  const effect = mayBeCharged ? ': the call may or may not have taken effect.' : '. The call had no effect.'
  return new RatelimitError(
    mayBeCharged ? 'OUTCOME_UNKNOWN' : 'TIMEOUT',
    `The time was over before the database answered${effect}`,
    { contended },
  )
}
