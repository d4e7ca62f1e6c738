import { sorted } from '../kernel/base/arrays.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import type { Snapshot } from '../kernel/limits/search.ts'
import { type Call, type Decision, lookAt, type Request } from '../kernel/store/call.ts'
import { balance } from './balance.ts'
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
  /** Unix milliseconds until which there is enough for the call, if nothing is taken: grants end. */
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

/** What there is to take beyond the debt. */
export function netOf({ granted, used }: Sums): number {
  return Math.max(granted - used, 0)
}

/** What grants add to the sums at a time. */
function sumsOf(grants: Iterable<Snapshot>, now: number): Omit<Sums, 'now'> {
  let [granted, used] = [0, 0]
  for (const { state } of grants) {
    if (state.windowStart <= now) continue
    granted += state.prevCount
    used += state.count
  }
  return { granted, used }
}

/** What a call needs to know, if all rows are known. It is allowed if there is the least. */
export function seenWhole(rows: GrantRows, least: number): Seen {
  const { now, debt, grants } = rows
  const { granted, used } = sumsOf(
    grants.map(({ look }) => look),
    now,
  )
  let [left, lastsUntil] = [-debt, 0]
  const endOf = ({ look }: SeenGrant) => look.state.windowStart
  for (const grant of sorted(grants, (one, other) => endOf(other) - endOf(one))) {
    const own = leftOf(grant)
    if (own <= 0) continue
    left += own
    lastsUntil = endOf(grant)
    if (left >= least) break
  }
  return { now, debt, grants, granted, used: used + debt, lastsUntil }
}

/** What there is when rows are decided, or afterwards. Of rows that were not read, only the change is known. */
export function seenAfter<Row extends { readonly call: Call }>(
  { key }: Account,
  seen: Seen,
  rows: readonly Row[],
  decisions: readonly Decision[],
  nextOf: (row: Row, decision: Decision) => Snapshot = (_, decision) => decision,
): Sums & Pick<Seen, 'debt'> {
  if (decisions.length === 0) return seen
  const now = Math.max(seen.now, ...decisions.map((decision) => decision.now))
  const before = new Map<string, Snapshot>(seen.grants.map(({ request, look }) => [request.key, look]))
  const after = new Map(before)
  let { debt } = seen
  for (const [place, decision] of decisions.entries()) {
    const row = rows[place] as Row
    const next = nextOf(row, decision)
    if (row.call.key === key + DEBT) debt = next.state.count
    else {
      if (!before.has(row.call.key)) before.set(row.call.key, decision)
      after.set(row.call.key, next)
    }
  }
  const [was, is] = [sumsOf(before.values(), seen.now), sumsOf(after.values(), now)]
  return {
    now,
    debt,
    granted: seen.granted + is.granted - was.granted,
    used: seen.used + is.used - was.used + debt - seen.debt,
  }
}
