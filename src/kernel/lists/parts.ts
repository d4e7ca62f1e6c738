import { availableIn } from '../answers/capacity.ts'
import { afterCalls, type Outcome, usedLess } from '../answers/outcome.ts'
import type { Snapshot } from '../limits/search.ts'
import { purposeOf } from '../options/validate.ts'
import { type Call, type Decision, type Request, reservedIn } from '../store/call.ts'
import type { RowRequest } from './sending.ts'

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
function isLate({ limiter, paidWindowStart, refundableUntil }: Request, look: Decision): boolean {
  const { windowStart } = look.state
  return limiter.algorithm.kind === 'window'
    ? (paidWindowStart ?? windowStart) !== windowStart
    : look.now >= (refundableUntil ?? Number.POSITIVE_INFINITY)
}

/** Whether a row whose window has to have paid counts another one. */
export function countsOtherWindow(row: RowRequest, look: Decision): boolean {
  return row.inTime && !isLook(row) && isLate(row, look)
}

/** The amount that the refunds of a row give back. */
export function returnedTo(row: Refunding, look: Decision): number {
  return row.refund === 0 ? 0 : usedLess(refundPart(row), look, afterRefund(row, look))
}

/** What a list has done to the row, in order: a refund, a charge, or both; or its share of a group's rate. */
export function partsOf(row: RowRequest, look: Decision): readonly Outcome<RowRequest>[] {
  if (look.share !== undefined) return [shareOf(row, look, look.share)]
  if (isLook(row)) return [{ call: row, decision: look, place: 0 }]
  const call = chargeOf(row, look)
  const charges = (decision: Decision) => (call.purpose === 'look' ? [] : [{ call, decision, place: 0 }])
  if (row.refund === 0) return charges(look)
  const after = afterRefund(row, look)
  const refund = { call: refundPart(row), decision: { ...look, granted: Number(after !== look) }, place: 0 }
  // The charge finds the row as the refund left it.
  return [refund, ...charges({ ...look, state: after.state })]
}

/** A call that pays this share of a group's rate. Where a row keeps the settled amount, even 0 changes it. */
export function shareOf<C extends Call>(call: C, look: Decision, share: number): Outcome<C> {
  const purpose = reservedIn(call) < 0 ? 'adjust' : purposeOf(share)
  const paying = { ...call, rate: share, atLeast: null, purpose }
  return { call: paying, decision: { ...look, granted: 1 }, place: 0 }
}

/** What is charged after the refunds: if a dry run would deny it, only its forced part. */
export function chargeOf(row: RowRequest, look: Decision): RowRequest {
  return fits(row, look)
    ? row
    : { ...row, rate: row.forced, needed: 0, purpose: row.forced > 0 ? 'adjust' : 'look' }
}

/** Whether the row is only looked at. */
export function isLook({ purpose, refund }: RowRequest): boolean {
  return purpose === 'look' && refund === 0
}

function refundPart<R extends Refunding>(row: R): R {
  return { ...row, rate: row.refund, needed: 0, purpose: purposeOf(row.refund) }
}
