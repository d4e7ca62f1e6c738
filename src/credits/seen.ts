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
  /** A look at its row. */
  readonly request: Request
  readonly look: Decision
}

/** What a key has: the sums over the grants that have not ended. */
export interface Sums {
  readonly now: number
  readonly granted: number
  /** With what is owed. */
  readonly used: number
}

/** Rows of a key, read without a lock. */
export interface Rows {
  readonly now: number
  /** What is owed, because more was taken by force than there was. */
  readonly debt: number
  /** In the order in which calls take from them. */
  readonly grants: readonly Grant[]
}

/** What a call needs to know of a key: what there is in all, and the grants that may take part. */
export interface Seen extends Rows, Sums {
  /** Unix milliseconds until which there is the rate of the call, if nothing is taken: grants end. */
  readonly lastsUntil: number
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

/** What there is to take beyond the debt. */
export function netOf({ granted, used }: Sums): number {
  return Math.max(granted - used, 0)
}

/** What grants add to the sums at a time. */
function sumsOf(grants: readonly Snapshot[], now: number): Omit<Sums, 'now'> {
  const live = grants.filter(({ state }) => state.windowStart > now)
  return {
    granted: live.reduce((sum, { state }) => sum + state.prevCount, 0),
    used: live.reduce((sum, { state }) => sum + state.count, 0),
  }
}

function looksOf(grants: readonly Grant[]): Snapshot[] {
  return grants.map(({ look }) => look)
}

/** What a call of a rate needs to know, if all rows are known. */
export function seenWhole(rows: Rows, rate: number): Seen {
  const { now, debt, grants } = rows
  const { granted, used } = sumsOf(looksOf(grants), now)
  let [left, lastsUntil] = [-debt, 0]
  const endOf = ({ look }: Grant) => look.state.windowStart
  for (const grant of grants.toSorted((one, other) => endOf(other) - endOf(one))) {
    const own = leftOf(grant)
    if (own <= 0) continue
    left += own
    lastsUntil = endOf(grant)
    if (left >= rate) break
  }
  return { ...rows, granted, used: used + debt, lastsUntil }
}

/** What there is after rows have changed. Of rows that were not read, only the change is known. */
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
  const now = Math.max(seen.now, ...decisions.map((decision) => decision.now))
  const { key: debtKey } = debtOf(account)
  const debt = found.get(debtKey)?.state.count ?? seen.debt
  const grants = seen.grants.map((grant) => ({ ...grant, look: found.get(grant.request.key) ?? grant.look }))
  const read = new Set<string | undefined>([debtKey, ...grants.map(({ request }) => request.key)])
  const others = [...found].filter(([key]) => !read.has(key))
  const stored = new Map(decisions.map((decision, place) => [rows[place]?.call.key, decision]))
  const before = sumsOf(
    [...looksOf(seen.grants), ...others.map(([key]) => stored.get(key) as Decision)],
    seen.now,
  )
  const after = sumsOf([...looksOf(grants), ...others.map(([, next]) => next)], now)
  return {
    ...{ now, debt, grants, lastsUntil: seen.lastsUntil },
    granted: seen.granted + after.granted - before.granted,
    used: seen.used + after.used - before.used + debt - seen.debt,
  }
}
