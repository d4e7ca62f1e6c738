import { afterCalls } from '../answers/outcome.ts'
import type { LimiterCall } from '../check/checker.ts'
import type { Decision } from '../runtime/call.ts'
import type { Decisions } from '../several/all-or-nothing.ts'
import { found, sourceOf } from '../several/enough.ts'
import type { Group } from '../several/sending.ts'
import type { Source } from '../several/shares.ts'
import type { Asked } from '../several/together.ts'
import type { Pays } from '../statements/list-row.ts'
import { type Account, debtOf, type Grant, isEndless, leftOf, type Seen } from './read.ts'

// The rows of a key's credits in a list: alone, or together with other limits.

/** A part of a cost, and the grant that paid it; undefined for the debt. */
export interface Part {
  readonly grant: Grant | undefined
  readonly amount: number
}

/** The rows of a key's credits that are to pay. */
export interface Payers {
  readonly account: Account
  /** What was read before. */
  readonly seen: Seen
  /** The calls in the order in which they pay, and the grant of each; undefined for the debt. */
  readonly rows: readonly (LimiterCall & { readonly grant: Grant | undefined; readonly pays: Pays })[]
}

/**
 * What becomes of a debt: it is left alone, the grants pay it too, or the rest of the cost is added to it.
 */
export type DebtRule = 'left' | 'paid' | 'takes the rest'

/** The call that takes a rate from the row of the debt. */
export function debtCall(account: Account, rate: number): LimiterCall {
  return { checker: account.checker, call: { ...debtOf(account), rate, purpose: 'take' } }
}

/** These grants of the credits, and the debt if it takes part. */
export function payersOf(
  account: Account,
  seen: Seen,
  grants: readonly Grant[],
  rate: number,
  debt: DebtRule,
): Payers {
  const { checker } = account
  const pays = debt === 'paid' ? 'what is not owed' : 'what it has'
  const paying = grants.map((grant) => ({
    checker,
    call: { ...grant.request, rate, purpose: 'take' as const },
    grant,
    pays: pays as Pays,
  }))
  const owing = { ...debtCall(account, rate), grant: undefined }
  if (debt === 'left') return { account, seen, rows: paying }
  return {
    account,
    seen,
    rows:
      debt === 'paid'
        ? [{ ...owing, pays: 'what it owes' }, ...paying]
        : [...paying, { ...owing, pays: 'the rest' }],
  }
}

/** The first grants that have the amount together. */
export function firstOf(grants: readonly Grant[], amount: number): readonly Grant[] {
  let [rest, length] = [amount, 0]
  while (rest > 0 && length < grants.length) rest -= leftOf(grants[length++] as Grant)
  return grants.slice(0, length)
}

/** What the rows pay of a shared rate, for those that do not pay what they have. */
export function paysIn({ rowOf }: Asked, { rows }: Payers): NonNullable<Group['pays']> {
  const special = rows.filter(({ pays }) => pays !== 'what it has')
  return new Map(special.map((each) => [found(rowOf, each), each.pays]))
}

/** The rows as the list has found them. */
export function sourcesIn(
  { rowOf }: Asked,
  group: Group,
  { looks }: Decisions,
  { rows }: Payers,
): (Source & { readonly snapshot: Decision })[] {
  return rows.map((each) => {
    const row = found(rowOf, each)
    const endsAt = each.grant && !isEndless(each.grant) ? each.grant.look.state.windowStart : undefined
    return { ...sourceOf(group, row, found(looks, row)), endsAt }
  })
}

/** What there is after the rows have paid their shares; without shares, what there was before. */
export function seenAfter(
  { seen, rows }: Payers,
  sources: ReturnType<typeof sourcesIn>,
  shares: readonly number[] = [],
): Seen {
  let debt = seen.debt
  const looks = new Map<Grant, Grant>()
  for (const [place, { call, grant }] of rows.entries()) {
    const { snapshot } = sources[place] as (typeof sources)[number]
    const rate = shares[place] ?? 0
    const look = rate === 0 ? snapshot : afterCalls({ call: { ...call, rate }, decision: snapshot }, 1)
    if (grant) looks.set(grant, { ...grant, look: { ...snapshot, ...look } })
    else debt = call.limiter.algorithm.numbers.used(look.state, look.now, look.params)
  }
  const now = Math.max(seen.now, ...sources.map(({ snapshot }) => snapshot.now))
  return { now, debt, grants: seen.grants.map((grant) => looks.get(grant) ?? grant) }
}

/** The parts that the rows have paid. */
export function partsOf({ rows }: Payers, shares: readonly number[]): Part[] {
  return rows.flatMap(({ grant }, place) => {
    const amount = shares[place] ?? 0
    return amount === 0 ? [] : [{ grant, amount }]
  })
}
