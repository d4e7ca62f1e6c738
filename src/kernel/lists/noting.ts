import { allowanceOf } from '../answers/answer.ts'
import { type Payment, paymentOf } from '../answers/outcome.ts'
import { refundableUntilOf, windowEndOf } from '../answers/refundable.ts'
import type { Allowed } from '../answers/results.ts'
import type { Limiter, Noted, Numbers } from '../limits/algorithm.ts'
import type { Decision } from '../store/call.ts'
import { found, paidIn } from './enough.ts'
import { fits, partsOf } from './parts.ts'
import type { Found, List, RowRequest } from './sending.ts'
import { opens } from './shapes.ts'

// What the row of an estimate notes, where a statement cannot read it from the row that pays. Statements work
// out the same: see `together` in sql/shares.ts.

/** What a row notes of what another has paid. */
export type Paid = Numbers<Noted>

/** The rows of estimates that the list opens, with what the rows of the list have paid as their own numbers. */
export function notingRows(list: List, looks: Found['looks']): { row: RowRequest; sent: RowRequest }[] {
  return list.rows.filter(opens).map((row) => {
    const paid = (list.notes.get(row) ?? []).map((payer) => paidFor(payer, list, looks))
    return { row, sent: { ...row, limiter: row.limiter.noting?.(notedTogether(paid)) ?? row.limiter } }
  })
}

/** What is noted of several rows is the sum that they have paid. */
function notedTogether(paid: readonly Paid[]): Paid {
  const [only = PAID_NOTHING, ...more] = paid
  return more.length === 0 ? only : { ...PAID_NOTHING, rate: paid.reduce((sum, { rate }) => sum + rate, 0) }
}

const PAID_NOTHING: Paid = { rate: 0, at: Number.POSITIVE_INFINITY, before: 0, dryRun: 0 }

function paidFor(payer: RowRequest | undefined, { groups }: List, looks: Found['looks']): Paid {
  if (payer) return paidBy(payer, found(looks, payer))
  // A limit without a row pays what the others of its group do not.
  const group = groups.find(({ order }) => order.includes(undefined))
  return { ...PAID_NOTHING, rate: (group && paidIn(group, looks)[group.order.indexOf(undefined)]) ?? 0 }
}

function paidBy(row: RowRequest, look: Decision): Paid {
  const outcome = partsOf(row, look).at(-1) ?? { call: { ...row, rate: 0 }, decision: look, place: 0 }
  const noted = notedBy(row.limiter, paymentOf(outcome), allowanceOf(outcome, NO_REPORTS))
  const before = row.limiter.algorithm.numbers.before?.(look.state) ?? noted.before
  const isDryRun = row.reporting.dryRun && look.share === undefined && !fits(row, look)
  return { ...noted, before, dryRun: Number(isDryRun) }
}

const NO_REPORTS = { thresholds: [], dryRun: false }

/** What the row of an estimate notes of a payment. */
export function notedBy(limiter: Limiter, payment: Payment, answer: Allowed): Paid {
  const { rate, windowStart, usedBefore } = payment
  const notesEnd = limiter.stored && limiter.algorithm.sql.before !== undefined
  const end = notesEnd ? windowEndOf(limiter, payment) : null
  return {
    rate,
    at: windowStart ?? refundableUntilOf(limiter, answer) ?? Number.POSITIVE_INFINITY,
    before: end !== null && windowStart !== null ? end - windowStart : (usedBefore ?? 0),
    dryRun: 0,
  }
}
