import type { Snapshot } from '../algorithms/search.ts'
import { availableIn } from '../answers/capacity.ts'
import { afterCalls, usedLess } from '../answers/outcome.ts'
import { purposeOf } from '../options/validate.ts'
import type { Decision, Request } from '../runtime/call.ts'
import type { RowRequest } from './add-up.ts'

// The parts of a request for a row: first the refunds, then the charge.

/** Whether a row has enough after the refunds. */
export function fits(row: RowRequest, look: Decision): boolean {
  return row.needed <= 0 || row.needed <= availableIn(row.limiter, afterRefund(row, look))
}

/** A call that gives something back to a row. */
export type Refunding = Request & Pick<RowRequest, 'refund'>

/** The row after its refunds. A refund beyond the capacity is lost. */
export function afterRefund(row: Refunding, look: Decision): Snapshot {
  if (row.refund === 0) return look
  const { numbers, tolerance } = row.limiter.algorithm
  // The statement too writes no refund if nothing is used, or if the refund comes too late.
  if (isLate(row, look) || numbers.used(look.state, look.now, look.params) <= tolerance) return look
  return afterCalls({ call: refundPart(row), decision: look }, 1)
}

/** Whether the refund comes too late: the window that paid is over, or the bucket that paid is full again. */
export function isLate({ limiter, paidWindowStart, refundableUntil }: Request, look: Decision): boolean {
  const { windowStart } = look.state
  return limiter.algorithm.kind === 'window'
    ? (paidWindowStart ?? windowStart) !== windowStart
    : look.now >= (refundableUntil ?? Number.POSITIVE_INFINITY)
}

/** The amount that the refunds of a row give back. */
export function returnedTo(row: Refunding, look: Decision): number {
  return row.refund === 0 ? 0 : usedLess(refundPart(row), look, afterRefund(row, look))
}

/**
 * The parts in order: a refund, a charge, or both. If a dry run would deny the charge, only its forced part
 * remains.
 */
export function partsOf(row: RowRequest, look: Decision): readonly RowRequest[] {
  if (isLook(row)) return [row]
  const charge = fits(row, look) ? row : forcedPart(row)
  const parts = row.refund === 0 ? [charge] : [refundPart(row), charge]
  return parts.filter(({ purpose }) => purpose !== 'look')
}

/** Whether the row is only looked at. */
export function isLook({ purpose, refund }: RowRequest): boolean {
  return purpose === 'look' && refund === 0
}

function refundPart<R extends Refunding>(row: R): R {
  return { ...row, rate: row.refund, needed: 0, purpose: purposeOf(row.refund) }
}

function forcedPart(row: RowRequest): RowRequest {
  return { ...row, rate: row.forced, needed: 0, purpose: row.forced > 0 ? 'adjust' : 'look' }
}
