import type { Allowed, Denied, Granted } from '../kernel/answers/results.ts'
import type { TxOptions } from '../kernel/options/calls.ts'

/** An estimate that was taken from credits and waits for its cost. */
export interface CreditReservation {
  /**
   * Settles the actual cost. If the estimate was too high, the rest goes back to the grants that paid, the last
   * one first; a grant that has ended gets nothing back. If it was too low, the rest is taken, into debt if
   * necessary. It is never denied.
   *
   * It can be called again after an error that says that nothing was charged, and after a rollback of `tx`.
   *
   * @throws RatelimitError `INVALID_RATE`, `ALREADY_SETTLED`, and the errors of `Credits.limit`.
   */
  commit(actual: number, options?: TxOptions): Promise<Allowed>
  /** Gives all of it back: the same as `commit(0)`. */
  release(options?: TxOptions): Promise<Allowed>
}

/** The answer of `Credits.reserve`. A denial needs no settling. */
export type CreditReserved = (Allowed & CreditReservation) | Denied

/** The answer of `Credits.reserve` with `atLeast`. */
export type CreditReservedPart = (Allowed & Granted & CreditReservation) | Denied
