import type { Snapshot } from '../algorithms/search.ts'
import { afterCalls, availableIn, usedLess } from '../check/answer.ts'
import type { Decision } from '../runtime/call.ts'
import { purposeOf } from '../validate.ts'
import type { RowRequest } from './add-up.ts'

// What of a row's calls is done: first what is given back, then what is taken.

/** Whether a row has as much as is asked of it, once the refunds are made. */
export function fits(row: RowRequest, look: Decision): boolean {
  return row.needed <= 0 || row.needed <= availableIn(row.limiter, afterRefund(row, look))
}

/** What a row holds after its refunds. What they give back beyond the capacity is lost. */
export function afterRefund(row: RowRequest, look: Decision): Snapshot {
  if (row.refund === 0) return look
  const { numbers, tolerance } = row.limiter.algorithm
  // The statement writes no refund either if nothing is used, or if it comes too late.
  if (isLate(row, look) || numbers.used(look.state, look.now, look.params) <= tolerance) return look
  return afterCalls({ call: refundPart(row), decision: look }, 1)
}

/** Whether the window that paid is over, or the bucket that paid has filled since. */
function isLate({ limiter, paidWindowStart, refundableUntil }: RowRequest, look: Decision): boolean {
  const { windowStart } = look.state
  return limiter.algorithm.kind === 'window'
    ? (paidWindowStart ?? windowStart) !== windowStart
    : look.now >= (refundableUntil ?? Number.POSITIVE_INFINITY)
}

/** How much the refunds of a row give back. */
export function returnedTo(row: RowRequest, look: Decision): number {
  return row.refund === 0 ? 0 : usedLess(refundPart(row), look, afterRefund(row, look))
}

/**
 * What is done, in its order: a refund, a charge, or one after the other. All of the charge; or in a dry run
 * that would deny it only what is forced.
 */
export function partsOf(row: RowRequest, look: Decision): readonly RowRequest[] {
  if (isLook(row)) return [row]
  const charge = fits(row, look) ? row : forcedPart(row)
  const parts = row.refund === 0 ? [charge] : [refundPart(row), charge]
  return parts.filter(({ purpose }) => purpose !== 'look')
}

/** Whether nothing is given back and nothing taken. */
export function isLook({ purpose, refund }: RowRequest): boolean {
  return purpose === 'look' && refund === 0
}

function refundPart(row: RowRequest): RowRequest {
  return { ...row, rate: row.refund, needed: 0, purpose: purposeOf(row.refund) }
}

function forcedPart(row: RowRequest): RowRequest {
  return { ...row, rate: row.forced, needed: 0, purpose: row.forced > 0 ? 'adjust' : 'look' }
}
