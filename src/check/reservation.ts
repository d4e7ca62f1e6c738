import type { CallOptions } from '../config.ts'
import { RatelimitError } from '../errors.ts'
import type { Allowed, Denied, LimitResult } from './answer.ts'

/** An estimate that is charged, and waits for the cost that it stands for. */
export interface Reservation {
  /**
   * Settles the actual cost. What the estimate lacks is charged, into debt if necessary; the rest of a high
   * estimate is given back to the window that paid.
   *
   * Without `tx` it runs outside the transaction of the reservation. Without `limiter` it uses the limit of
   * the reservation.
   *
   * @throws RatelimitError `INVALID_RATE`, `ALREADY_SETTLED`; and what `Ratelimit.limit` throws. It may be
   * called again after an error that says that nothing was charged. It cannot see a rollback of the transaction
   * that it was settled in: the estimate stays charged, and another call is refused. Begin again with
   * `reserve`, or settle outside the transaction.
   */
  commit(actual: number, options?: CallOptions): Promise<LimitResult>
  /** Gives all of it back: the same as `commit(0)`. */
  release(options?: CallOptions): Promise<LimitResult>
}

/** The answer of `Ratelimit.reserve`. A denial needs no settling. */
export type Reserved = (Allowed & Reservation) | Denied

/** A reservation of a charge. `adjust` charges or gives back the difference. */
export function reservationOf(
  answer: Allowed,
  charged: number,
  adjust: (difference: number, options: CallOptions) => Promise<LimitResult>,
): Allowed & Reservation {
  let settled = false
  const commit = async (actual: number, options: CallOptions = {}) => {
    if (settled)
      throw new RatelimitError('ALREADY_SETTLED', 'The reservation was committed or released before.')
    if (!(actual >= 0))
      throw new RatelimitError('INVALID_RATE', 'What a reservation has cost is a number from 0 on.')
    settled = true
    try {
      return await adjust(actual - charged, options)
    } catch (error) {
      settled = error instanceof RatelimitError && error.code === 'OUTCOME_UNKNOWN'
      throw error
    }
  }
  return { ...answer, commit, release: (options) => commit(0, options) }
}
