import { availableIn } from '../answers/capacity.ts'
import { inTransaction } from '../database/transaction.ts'
import { type Decision, reservedIn } from '../store/call.ts'
import { isEnough, isInGroup, refusalBy, sourceOf } from './enough.ts'
import { askList } from './list.ts'
import { notingRows } from './noting.ts'
import { isLook } from './parts.ts'
import type { Found, Group, List, RowRequest } from './sending.ts'
import { type How, opens } from './shapes.ts'
import { takenFrom } from './shares.ts'

type Looks = Map<RowRequest, Decision>

/** Thrown to roll back a transaction that has charged some of the rows. */
class Undone {}

/**
 * Charges a list whose rows are on several servers, or that has too many rows for one statement: all of them or
 * none, in one transaction, with statements for each row. It locks all rows in the order of every list,
 * decides, and then writes each.
 */
export async function askRowByRow(list: List, how: How): Promise<Found> {
  if (how === 'looks') return { isDone: false, looks: await lookRowByRow(list) }
  const { connection } = list
  const within = (work: (own: List) => Promise<Found>) =>
    inTransaction(connection, (own) => work({ ...list, connection: own }))
  try {
    if (connection.isTransaction) return await chargeRow(list, how, within)
    return await within((own) => chargeRow(own, how, (work) => work(own)))
  } catch (reason) {
    if (!(reason instanceof Undone)) throw reason
    // A period ended between the two statements for a row, so the list is tried again.
    return { isDone: false, looks: new Map() }
  }
}

async function lookRowByRow(list: List): Promise<Looks> {
  const looks: Looks = new Map()
  for (const row of list.rows) await askRow(list, row, 'looks', undefined, looks)
  return looks
}

async function chargeRow(
  list: List,
  how: 'skips' | 'waits',
  undoable: (work: (list: List) => Promise<Found>) => Promise<Found>,
): Promise<Found> {
  const locked: Looks = new Map()
  for (const row of list.rows) {
    // To take nothing from a row is to lock it and to look at it.
    if (isLook(row)) await askRow(list, row, 'looks', undefined, locked)
    else await lockRow(list, row, how, locked)
    // A missing row is inserted before the rows after it are locked.
    if (!locked.has(row)) return { isDone: false, looks: locked }
  }
  const isRefused = !isEnough(list, locked) || refusalBy(list, locked)
  if (isRefused) return { isDone: false, looks: locked }
  return undoable(async (own) => {
    const charged: Looks = new Map(locked)
    for (const { row, share, sent, group } of chargesOf(list, locked)) {
      if (!(await askRow(own, sent, 'waits', group, charged))) throw new Undone()
      if (share === undefined) continue
      const found = charged.get(sent) as Decision
      charged.delete(sent)
      charged.set(row, { ...sharedState(row, locked.get(row) as Decision, found), share })
    }
    for (const { row, sent } of notingRows(own, charged)) {
      if (!(await askRow(own, sent, 'waits', undefined, charged))) throw new Undone()
      charged.set(row, charged.get(sent) as Decision)
      charged.delete(sent)
    }
    return { isDone: true, looks: charged }
  })
}

/** A row that takes nothing and settles nothing is only locked. */
async function lockRow(list: List, row: RowRequest, how: How, locked: Looks): Promise<void> {
  const nothing: RowRequest = { ...row, reserved: 0 }
  await askRow(list, nothing, how, { rate: 0, least: 0, order: [nothing] }, locked)
  const look = locked.get(nothing)
  if (look) locked.set(row, look)
  locked.delete(nothing)
}

/**
 * The state of a row that shares a rate. The shares are those of the rows as they were locked. But a new window
 * begins when it is charged.
 */
function sharedState({ limiter }: RowRequest, locked: Decision, charged: Decision): Decision {
  if (locked.state.windowStart === charged.state.windowStart) return locked
  if (availableIn(limiter, locked) !== availableIn(limiter, charged)) throw new Undone()
  return charged
}

/** A row, and how it is charged. */
interface RowCharge {
  readonly row: RowRequest
  /** What the row pays of the rate of its group. Undefined if it pays its own rate. */
  readonly share: number | undefined
  /** The request that charges it, and its group. */
  readonly sent: RowRequest
  readonly group?: Group
}

/** The rows to charge. A row of a group is charged its share, as a group of its own. */
function chargesOf({ rows, groups }: List, looks: Looks): RowCharge[] {
  // Estimates are opened last, because they note what the others have paid.
  const others = rows.filter((row) => !isInGroup(groups, row) && !isLook(row) && !opens(row))
  return [
    ...others.map((row) => ({ row, share: undefined, sent: row })),
    ...groups.flatMap((group) => payingCharges(group, looks)),
  ]
}

/** The rows of a group that pay something, or that others pay something for. */
function payingCharges(group: Group, looks: Looks): RowCharge[] {
  const { order, rate, pays } = group
  const rows = order.flatMap((row) => row ?? [])
  // An unlimited one pays all the rest, so those after it pay nothing.
  const end = order.indexOf(undefined)
  const sources = (end < 0 ? rows : rows.slice(0, end)).map((row) => {
    const source = sourceOf(group, row, looks.get(row) as Decision)
    return end >= 0 && source.pays === 'rest as debt' ? { ...source, pays: undefined } : source
  })
  const { shares } = takenFrom(sources, rate)
  return rows.flatMap((row, place): RowCharge[] => {
    const share = shares[place] ?? 0
    // A row that pays nothing may settle an estimate.
    if (share === 0 && reservedIn(row) >= 0) return []
    // Others pay what it owes, so that its debt gets smaller.
    if (share < 0)
      return [{ row, share, sent: { ...row, rate: 0, needed: 0, refund: share, purpose: 'look' } }]
    const isDebtor = pays?.get(row) === 'rest as debt'
    const own = { rate: share, least: share, order: [row], ...(isDebtor ? { pays } : {}) }
    return [{ row, share, sent: row, group: own }]
  })
}

/** Sends one row of the list, and notes what it found. Returns whether the row was charged. */
async function askRow(
  list: List,
  row: RowRequest,
  how: How,
  group: Group | undefined,
  looks: Looks,
): Promise<boolean> {
  const found = await askList({ ...list, rows: [row], groups: group ? [group] : [] }, how)
  for (const [each, decision] of found.looks) looks.set(each, decision)
  return found.isDone
}
