import { balance } from '../algorithms/balance.ts'
import type { Credits } from '../algorithms/credits.ts'
import { NEVER_MS } from '../algorithms/grant.ts'
import type { Snapshot } from '../algorithms/search.ts'
import type { Checker, LimiterCall } from '../check/checker.ts'
import type { Decision, Request } from '../runtime/call.ts'
import { lookAt } from '../runtime/look-at.ts'
import { DEBT } from '../statements/grants.ts'

// What is known of the credits of a key.

/** The credits of a key: the limiter, and the key as it is stored. */
export interface Account {
  readonly checker: Checker
  readonly credits: Credits
  readonly key: string
}

/** A grant's row as it was read. */
export interface Grant {
  readonly id: string
  /** A look at its row. */
  readonly request: Request
  readonly look: Decision
}

/** What was read of a key, without a lock. */
export interface Seen {
  readonly now: number
  /** What is owed, because more was taken by force than there was. */
  readonly debt: number
  /** In the order in which calls take from them. */
  readonly grants: readonly Grant[]
}

/** What a key has: the sums over the grants that have not ended. */
export interface Sums {
  readonly now: number
  readonly granted: number
  /** With what is owed. */
  readonly used: number
}

/** What a grant has left. */
export function leftOf({ request, look }: Pick<Grant, 'request' | 'look'>): number {
  return request.limiter.algorithm.numbers.available(look.state, look.now, look.params)
}

/** A look at the row with the debt: a balance without grants. */
export function debtOf({ key }: Pick<Account, 'key'>): Request {
  return lookAt(key + DEBT, balance())
}

/** Whether a grant never ends. */
export function isEndless({ look }: Grant): boolean {
  return look.state.windowStart >= NEVER_MS
}

/** What there is to take beyond the debt, at a time. Default: when it was seen. */
export function netOf({ grants, debt }: Pick<Seen, 'grants' | 'debt'>, now?: number): number {
  const left = grants.map(({ request, look }) => leftOf({ request, look: { ...look, now: now ?? look.now } }))
  return Math.max(
    left.reduce((sum, each) => sum + each, -debt),
    0,
  )
}

/** What there is after rows have changed. */
export function seenAfter(
  account: Account,
  seen: Seen,
  rows: readonly Pick<LimiterCall, 'call'>[],
  decisions: readonly Decision[],
  nextOf: (place: number, decision: Decision) => Snapshot,
): Seen {
  const found = new Map(
    decisions.map((decision, place) => [rows[place]?.call.key, { ...decision, ...nextOf(place, decision) }]),
  )
  return {
    now: Math.max(seen.now, ...decisions.map(({ now }) => now)),
    debt: found.get(debtOf(account).key)?.state.count ?? seen.debt,
    grants: seen.grants.map((grant) => ({ ...grant, look: found.get(grant.request.key) ?? grant.look })),
  }
}
