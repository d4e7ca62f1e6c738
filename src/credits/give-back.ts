import type { Checker, LimiterCall } from '../check/checker.ts'
import type { Database } from '../database/database.ts'
import type { Once } from '../options/calls.ts'
import type { Request } from '../runtime/call.ts'
import type { Decisions } from '../several/all-or-nothing.ts'
import { found } from '../several/enough.ts'
import { idCall } from '../several/ids.ts'
import { afterRefund, returnedTo } from '../several/parts.ts'
import { type Asked, askedOf, isRepeated, takeTogether } from '../several/together.ts'
import type { Part } from './charge.ts'
import { type Account, debtOf, read, type Seen } from './read.ts'

/** A row and the amount that it gets back. */
export interface Refund {
  readonly request: Request
  readonly amount: number
}

/** How much of a refund was given back, and what there is now. */
export interface GivenBack {
  readonly returned: number
  readonly after: Seen
  /** Whether the id was used before. */
  readonly isRepeated: boolean
}

/** Gives an amount back to the grants that paid these parts: the part that was paid last gets it first. */
export async function giveBackTo(
  account: Account,
  parts: readonly Part[],
  amount: number,
  tx: Database | undefined,
): Promise<GivenBack> {
  // It is read before, because an error after the refund would say that nothing was given back.
  const seen = await read(account, tx)
  return refund(account, seen, refundsTo(account, parts, amount), undefined, tx)
}

/** What the rows that paid these parts get back of an amount. */
export function refundsTo(account: Account, parts: readonly Part[], amount: number): readonly Refund[] {
  const paid = parts.toReversed().map((part) => ({
    request: part.grant?.request ?? debtOf(account),
    amount: part.amount,
  }))
  return atMost(paid, amount)
}

/**
 * Gives an amount back if it is not known which grants have paid. It first lowers the debt, and then gives to
 * the grants in the opposite order of that in which calls take from them.
 */
export async function giveBack(
  account: Account,
  amount: number,
  once: Once | undefined,
  tx: Database | undefined,
): Promise<GivenBack> {
  let done = await giveBackOnce(account, amount, once, tx)
  try {
    // Others have given back to the same grants meanwhile.
    while (!done.isRepeated && done.returned < done.planned) {
      const more = await giveBackOnce(account, amount - done.returned, undefined, tx)
      done = { ...more, returned: done.returned + more.returned, planned: done.returned + more.planned }
    }
  } catch (error) {
    // What was given back until now counts, unless the transaction is lost anyway.
    if (account.checker.joined(tx)) throw error
  }
  return done
}

async function giveBackOnce(
  account: Account,
  amount: number,
  once: Once | undefined,
  tx: Database | undefined,
): Promise<GivenBack & { readonly planned: number }> {
  const seen = await read(account, tx)
  const used = seen.grants.toReversed().map(({ request, look }) => ({ request, amount: look.state.count }))
  const refunds = atMost([{ request: debtOf(account), amount: seen.debt }, ...used], amount)
  const planned = refunds.reduce((sum, each) => sum + each.amount, 0)
  return { ...(await refund(account, seen, refunds, once, tx)), planned }
}

/** The first refunds that make up the amount. */
function atMost(refunds: readonly Refund[], amount: number): Refund[] {
  let rest = amount
  return refunds.flatMap((each) => {
    const share = Math.min(each.amount, rest)
    rest -= Math.max(share, 0)
    return share > 0 ? [{ ...each, amount: share }] : []
  })
}

/** A grant that has ended gets nothing back. */
async function refund(
  { checker, key }: Account,
  seen: Seen,
  refunds: readonly Refund[],
  once: Once | undefined,
  tx: Database | undefined,
): Promise<GivenBack> {
  const calls = refundCalls(checker, refunds)
  const [call = { checker, call: { ...debtOf({ key }), rate: -1 } }] = calls
  const id = await idCall(once, [call])
  if (calls.length === 0 && id === undefined) return { returned: 0, after: seen, isRepeated: false }
  const asked = askedOf(calls, tx, id)
  const decisions = await takeTogether(asked)
  if (isRepeated(asked, decisions)) return { returned: 0, after: seen, isRepeated: true }
  return { ...givenBack(key, seen, calls, asked, decisions), isRepeated: false }
}

/** The calls that give back. */
export function refundCalls(checker: Checker, refunds: readonly Refund[]): LimiterCall[] {
  return refunds.map(({ request, amount }) => ({
    checker,
    call: { ...request, rate: -amount, purpose: 'adjust' },
  }))
}

/** What such calls gave back, and what there is after them. */
export function givenBack(
  key: string,
  seen: Seen,
  calls: readonly LimiterCall[],
  asked: Asked,
  decisions: Decisions,
): Omit<GivenBack, 'isRepeated'> {
  const looks = new Map(
    calls.map((each) => {
      const row = found(asked.rowOf, each)
      const look = found(decisions.looks, row)
      return [row.key, { returned: returnedTo(row, look), look: { ...look, ...afterRefund(row, look) } }]
    }),
  )
  const debt = looks.get(debtOf({ key }).key)
  const after = {
    now: Math.max(seen.now, ...[...looks.values()].map(({ look }) => look.now)),
    debt: debt ? (debt.look.state.count ?? 0) : seen.debt,
    grants: seen.grants.map((grant) => ({
      ...grant,
      look: looks.get(grant.request.key)?.look ?? grant.look,
    })),
  }
  const returned = [...looks.values()].reduce((sum, each) => sum + each.returned, 0)
  return { returned, after }
}
