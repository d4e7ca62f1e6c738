import type { FoundRow, ListStatus, Purse } from '../estimates/funds.ts'
import { lastFirst } from '../estimates/shares.ts'
import type { Answered, PaidPart } from '../kernel/answers/answer.ts'
import { paidWith } from '../kernel/answers/outcome.ts'
import type { Allowed } from '../kernel/answers/results.ts'
import { afterRefund, type Refunding, returnedTo } from '../kernel/lists/parts.ts'
import { type Decision, lookAt, type Request } from '../kernel/store/call.ts'
import type { Entry } from '../kernel/store/entry.ts'
import { limiterOfAge } from './grant.ts'
import { type Account, debtOf, type Seen, seenAfter } from './seen.ts'
import { allowed } from './usage.ts'

/** A row that gets something back. */
interface Refunded extends FoundRow {
  readonly call: Refunding
}

/** The rows that get an amount back, or none if it is 0. They never have too little. */
class Refunds implements Purse {
  readonly rows: readonly Refunded[]
  readonly rate: undefined
  readonly has = 0
  readonly #account: Account
  readonly #seen: Seen
  readonly #amount: number

  constructor(account: Account, seen: Seen, rows: readonly Refunded[], amount: number) {
    this.rows = rows
    this.#account = account
    this.#seen = seen
    this.#amount = amount
  }

  answer(decisions: readonly Decision[], status: ListStatus): Answered {
    const refunds = status === 'charged' ? decisions : []
    const returned = refunds.reduce(
      (sum, decision, place) => sum + returnedTo(this.#call(place), decision),
      0,
    )
    const after = seenAfter(this.#account, this.#seen, this.rows, refunds, (place, decision) =>
      afterRefund(this.#call(place), decision),
    )
    const answer: Allowed = {
      ...(refunds.length > 0 ? allowed(after) : this.present(decisions)),
      ...(this.#amount > 0 ? { returned } : {}),
      ...(status === 'repeated' ? { repeated: true } : {}),
    }
    const parts = this.rows.map(({ call }) => ({ key: call.key, madeMs: undefined, amount: -call.rate }))
    return { answer, paid: paidWith(-returned), parts }
  }

  present(decisions: readonly Decision[]): Allowed {
    return allowed(seenAfter(this.#account, this.#seen, this.rows, decisions, (_, decision) => decision))
  }

  hadEnough(): boolean {
    return true
  }

  isWorse(): boolean {
    return false
  }

  #call(place: number): Refunding {
    return (this.rows[place] as Refunded).call
  }
}

/**
 * What gives an amount back: the rows that have paid these parts, the last one first. Without parts it lowers
 * the debt, and then gives to the grants in the opposite order of that in which calls take from them. A grant
 * that has ended gets nothing back.
 */
export function refunding(
  account: Account,
  seen: Seen,
  amount: number,
  parts?: readonly PaidPart[],
  kind: Entry['kind'] = 'refund',
): Purse {
  const { checker } = account
  const paid =
    parts?.map((part) => ({ call: payerOf(account, part), amount: part.amount })) ?? usedIn(account, seen)
  const returned = lastFirst(
    paid.map((part) => part.amount),
    amount,
  )
  const rows = paid.flatMap(({ call }, place): Refunded[] => {
    const rate = -(returned[place] as number)
    return rate === 0
      ? []
      : [{ checker, isFound: true, kind, call: { ...call, rate, refund: rate, purpose: 'adjust' } }]
  })
  return new Refunds(account, seen, rows, amount)
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
