import type { CallOptions } from '../config.ts'
import { RatelimitError } from '../errors.ts'
import type { Allowed, Denied, LimitResult } from './answer.ts'

/** An estimate that is charged, and waits for the cost that it stands for. */
export interface Reservation {
  /**
   * Says what it has cost: a difference is charged, into debt if need be, or given back to the window that paid.
   *
   * It runs outside the transaction of the reservation, unless it is given one; and under its limit, unless the plan is another by now.
   *
   * @throws RatelimitError `INVALID_RATE`, `ALREADY_SETTLED`; and what `Ratelimit.limit` throws. It may be called again after an error
   * that says that nothing was charged; not after a rollback of the transaction that it was settled in, which it cannot see, and which
   * leaves the estimate: run again from the reservation on, or settle outside.
   */
  commit(actual: number, options?: CallOptions): Promise<LimitResult>
  /** Gives all of it back: the same as `commit(0)`. */
  release(options?: CallOptions): Promise<LimitResult>
}

/** The answer of `Ratelimit.reserve`: what is denied needs no settling. */
export type Reserved = (Allowed & Reservation) | Denied

/** The reservation of a charge, of which `adjust` charges or gives back the difference. */
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
