import { notAsExpected } from '../database/rows.ts'
import { otherPlan, tooMuch } from '../engine/refusal.ts'
import type { RatelimitError } from '../errors.ts'
import { MAX_COUNT } from '../limits/limiter.ts'
import type { Snapshot } from '../limits/search.ts'
import type { Decision } from '../store/call.ts'
import { afterRefund, chargeOf, countsOtherWindow, fits } from './parts.ts'
import type { Found, Group, List, RowRequest } from './sending.ts'
import { type Source, sharesOf } from './shares.ts'

/** Whether the rows have enough for the list. */
export function isEnough({ rows, groups }: List, looks: Found['looks']): boolean {
  const hasEnough = (row: RowRequest) => {
    const look = found(looks, row)
    if (countsOtherWindow(row, look)) return false
    return isInGroup(groups, row) || row.reporting.dryRun || fits(row, look)
  }
  return rows.every(hasEnough) && groups.every((group) => haveEnough(group, looks))
}

/** Whether the row pays the rate of a group, and not its own. */
export function isInGroup(groups: readonly Group[], row: RowRequest): boolean {
  return groups.some(({ order }) => order.includes(row))
}

function haveEnough(group: Group, looks: Found['looks']): boolean {
  const { order, rate, least } = group
  const sources = order.flatMap((row) => (row ? [sourceOf(group, row, found(looks, row))] : []))
  // A limit without a row pays all the rest.
  return sources.length < order.length || sharesOf(sources, rate, least) !== undefined
}

/**
 * What those of a group have paid, in its order. A limit without a row has paid what the rows before it have
 * not.
 */
export function paidIn({ order, rate }: Group, looks: Found['looks']): readonly number[] {
  let rest = rate
  return order.map((row) => {
    const share = row ? (found(looks, row).share ?? 0) : rest
    rest -= share
    return share
  })
}

/** A row of a group, and what it pays. */
export function sourceOf({ pays }: Group, row: RowRequest, snapshot: Decision): PayingRow {
  return { call: row, snapshot, pays: pays?.get(row) }
}

/** A row that pays a part of its group's rate. */
export type PayingRow = Source & { readonly snapshot: Decision }

/**
 * The reason why the database refused the list: a row of another plan, or a forced charge too large to count.
 */
export function refusalBy(list: List, looks: Found['looks']): RatelimitError | undefined {
  const isRefused = isEnough(list, looks)
  for (const row of list.rows) {
    const look = found(looks, row)
    if (look.isOther) return otherPlan()
    if (isRefused && isTooMuch(chargeOf(row, look), afterRefund(row, look))) return tooMuch()
  }
  return undefined
}

/** Whether a forced charge, or what is added, is too large to count. */
function isTooMuch({ rate, limiter, purpose }: RowRequest, { state, now, params }: Snapshot): boolean {
  // A charge that may be denied never makes its count too large.
  if (purpose !== 'add' && (purpose !== 'adjust' || rate <= 0)) return false
  const { used, capacity } = limiter.algorithm.numbers
  const counted = purpose === 'add' && capacity ? capacity(state, params) : used(state, now, params)
  return counted + rate > MAX_COUNT
}

/** The value of the key. It is missing only if the database's answer had no row for a key. */
export function found<K, V>(map: ReadonlyMap<K, V>, key: K): V {
  const value = map.get(key)
  if (value === undefined) throw notAsExpected('has no row for a key')
  return value
}
