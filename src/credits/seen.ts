import { sorted } from '../kernel/base/arrays.ts'
import type { Checker, LimiterCall } from '../kernel/engine/checker.ts'
import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import type { Snapshot } from '../kernel/limits/search.ts'
import { type Decision, lookAt, type Request } from '../kernel/store/call.ts'
import { balance } from './balance.ts'
import { NEVER_MS } from './grant.ts'
import { DEBT } from './keys.ts'

// What is known of the credits of a key.

/** The credits of a key. */
export interface Account {
  readonly checker: Checker
  /** The limit of the row of a grant. */
  readonly limiter: StoredLimiter
  /** As it is stored. */
  readonly key: string
}

/** A grant's row as it was read. */
export interface SeenGrant {
  /** A look at its row. */
  readonly request: Request
  readonly look: Snapshot
}

/** What a key has: the sums over the grants that have not ended. */
export interface Sums {
  readonly now: number
  readonly granted: number
  /** With what is owed. */
  readonly used: number
}

/** Rows of a key, read without a lock. */
export interface GrantRows {
  readonly now: number
  /** What is owed, because more was taken by force than there was. */
  readonly debt: number
  /** In the order in which calls take from them. */
  readonly grants: readonly SeenGrant[]
}

/** What a call needs to know of a key: what there is in all, and the grants that may take part. */
export interface Seen extends GrantRows, Sums {
  /** Unix milliseconds until which there is the rate of the call, if nothing is taken: grants end. */
  readonly lastsUntil: number
}

/** What a grant has left. */
export function leftOf({ request, look }: Pick<SeenGrant, 'request' | 'look'>): number {
  return request.limiter.algorithm.numbers.available(look.state, look.now, look.params)
}

/** A look at the row with the debt: a balance without grants. */
export function debtOf({ key }: Pick<Account, 'key'>): Request {
  return lookAt(key + DEBT, OWED)
}

const OWED = /* @__PURE__ */ balance()

/** Whether a grant never ends. */
export function neverEnds({ look }: SeenGrant): boolean {
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

function looksOf(grants: readonly SeenGrant[]): Snapshot[] {
  return grants.map(({ look }) => look)
}

/** What a call of a rate needs to know, if all rows are known. */
export function seenWhole(rows: GrantRows, rate: number): Seen {
  const { now, debt, grants } = rows
  const { granted, used } = sumsOf(looksOf(grants), now)
  let [left, lastsUntil] = [-debt, 0]
  const endOf = ({ look }: SeenGrant) => look.state.windowStart
  for (const grant of sorted(grants, (one, other) => endOf(other) - endOf(one))) {
    const own = leftOf(grant)
    if (own <= 0) continue
    left += own
    lastsUntil = endOf(grant)
    if (left >= rate) break
  }
  return { now, debt, grants, granted, used: used + debt, lastsUntil }
}

/** What there is after rows have changed. Of rows that were not read, only the change is known. */
export function seenAfter(
  { key }: Account,
  seen: Seen,
  rows: readonly Pick<LimiterCall, 'call'>[],
  decisions: readonly Decision[],
  nextOf: (place: number, decision: Decision) => Snapshot,
): Seen {
  const now = Math.max(seen.now, ...decisions.map((decision) => decision.now))
  const places = new Map(decisions.map((_, place) => [rows[place]?.call.key, place]))
  let { debt, granted, used } = seen
  /** The row of the key before and after, if it has changed. */
  const changeOf = (row: string | undefined) => {
    const place = places.get(row)
    if (place === undefined) return undefined
    places.delete(row)
    const before = decisions[place] as Decision
    return { before, after: nextOf(place, before) }
  }
  const count = ({ state }: Snapshot, at: number, times: 1 | -1) => {
    if (state.windowStart <= at) return
    granted += times * state.prevCount
    used += times * state.count
  }
  const owing = changeOf(key + DEBT)
  if (owing) debt = owing.after.state.count
  const grants = seen.grants.map((grant) => {
    const look = changeOf(grant.request.key)?.after ?? grant.look
    count(grant.look, seen.now, -1)
    count(look, now, 1)
    return { request: grant.request, look }
  })
  // Rows that were not read.
  for (const row of places.keys()) {
    const change = changeOf(row)
    if (!change) continue
    count(change.before, seen.now, -1)
    count(change.after, now, 1)
  }
  return { now, debt, grants, granted, used: used + debt - seen.debt, lastsUntil: seen.lastsUntil }
}
