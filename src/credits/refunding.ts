import type { FoundRow, FundsTaking, Purse } from '../estimates/funds.ts'
import { lastFirst } from '../estimates/shares.ts'
import type { PaidPart } from '../kernel/answers/answer.ts'
import { paidWith } from '../kernel/answers/outcome.ts'
import { afterRefund, type Refunding, returnedTo } from '../kernel/lists/parts.ts'
import { lookAt, type Request } from '../kernel/store/call.ts'
import { limiterOfAge } from './grant.ts'
import { type Account, debtOf, type Seen, seenAfter } from './seen.ts'
import { allowed } from './usage.ts'

/** A row that gets something back. */
interface Refunded extends FoundRow {
  readonly call: Refunding
}

/**
 * What gives an amount back: the rows that have paid these parts, the last one first. Without parts it lowers
 * the debt, and then gives to the grants in the opposite order of that in which calls take from them. A grant
 * that has ended gets nothing back. If the amount is 0, it only looks.
 */
export function refunding(
  account: Account,
  taking: Pick<FundsTaking, 'rate' | 'parts' | 'as'>,
  seen: Seen,
): Purse {
  const { checker } = account
  const { rate, parts, as: kind = 'refund' } = taking
  const paid =
    parts?.map((part) => ({ call: payerOf(account, part), amount: part.amount })) ?? usedIn(account, seen)
  const amounts = lastFirst(
    paid.map((part) => part.amount),
    -rate,
  )
  const rows = paid.flatMap(({ call }, place): Refunded[] => {
    const refund = -(amounts[place] as number)
    return refund === 0
      ? []
      : [{ checker, isFound: true, kind, call: { ...call, rate: refund, refund, purpose: 'adjust' } }]
  })
  return {
    rows,
    rate: undefined,
    has: 0,
    lacked: () => undefined,
    answer: (decisions, status) => {
      const refunds = status === 'charged' ? decisions : []
      const returned = refunds.reduce(
        (sum, decision, place) => sum + returnedTo((rows[place] as Refunded).call, decision),
        0,
      )
      const now = seenAfter(account, seen, rows, decisions, ({ call }, decision) =>
        status === 'charged' ? afterRefund(call, decision) : decision,
      )
      return {
        answer: {
          ...allowed(now),
          ...(rate < 0 ? { returned } : {}),
          ...(status === 'repeated' ? { repeated: true } : {}),
        },
        paid: paidWith(-returned),
        parts: rows.map(({ call }) => ({ key: call.key, madeMs: undefined, amount: -call.rate })),
      }
    },
  }
}

/** A look at a row that has paid. A grant that was made later is another one. */
export function payerOf(account: Account, { key, madeMs }: PaidPart): Request {
  return madeMs === undefined ? debtOf(account) : lookAt(key, limiterOfAge(account.limiter, madeMs))
}

/** What was taken, and may be given back: the debt first. */
function usedIn(
  account: Account,
  { debt, grants }: Seen,
): { readonly call: Request; readonly amount: number }[] {
  const used = grants.map(({ request, look }) => ({ call: request, amount: look.state.count }))
  return [...used, { call: debtOf(account), amount: debt }]
}
