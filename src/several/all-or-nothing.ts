import { freshState, paramsAt } from '../algorithms/limiter.ts'
import type { Snapshot } from '../algorithms/search.ts'
import { refusalOf, refusalOn } from '../check/refusal.ts'
import { notAsExpected } from '../database/rows.ts'
import { RatelimitError } from '../errors.ts'
import { type Decision, isForced } from '../runtime/call.ts'
import type { RowRequest } from './add-up.ts'
import { askList, type Found, isWhole, type List, learnPeriods, makeRows, removeEmpty } from './list.ts'
import { afterRefund, fits, isLook, partsOf } from './parts.ts'
import { sharesOf } from './shares.ts'

/** What was decided on rows: the look at each, and the decision on those that were charged. */
export interface Decisions {
  readonly looks: ReadonlyMap<RowRequest, Decision>
  readonly taken: ReadonlyMap<RowRequest, Decision>
}

/** Each attempt can lose the race for a new row. After so many losses something else is wrong. */
const MAX_ATTEMPTS = 50

/**
 * Charges all rows, or none. One statement does it if the rows are there and free.
 *
 * If rows are missing, two more make them and try again. Outside of a transaction the first statement waits for
 * no row; the others may wait, with nothing of the list locked that comes after it in the order of the locks.
 *
 * @param first What the first statement found, if it was sent already.
 */
export async function chargeList(list: List, first?: Found): Promise<Decisions> {
  if (list.rows.length === 0) return { looks: new Map(), taken: new Map() }
  let given = first
  let waits = first === undefined
  let hasMade = false
  for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
    const found = given ?? (await askList(list, waits ? 'waits' : 'skips'))
    given = undefined
    if (learnPeriods(list, found.looks)) continue
    if (isWhole(list, found)) {
      if (hasMade && !isCharged(list, found)) await tidyUp(list)
      return decisionsOn(list, found)
    }
    const denial = hasMade ? undefined : await denialOf(list, found)
    if (denial) return denial
    await makeRows(list)
    hasMade = true
    waits = true
  }
  throw new RatelimitError(
    'CONTENTION',
    `New keys were made and removed by others ${MAX_ATTEMPTS} times while they were checked. Nothing was charged.`,
  )
}

/**
 * What was decided on the rows of a list, all of which were found.
 *
 * @throws RatelimitError why the database has refused the list.
 */
export function decisionsOn(list: List, { isDone, looks }: Found): Decisions {
  const refusal = isDone ? undefined : refusalBy(list, looks)
  if (refusal) throw refusal
  // The answers are worked out by the same formulas. If they disagreed, one of them would be wrong.
  if (isDone !== isEnough(list, (row) => found(looks, row))) throw notAsExpected('contradicts itself')
  return { looks, taken: isDone ? takenBy(list, looks) : new Map() }
}

/** Removes rows that were made for nothing. What was decided stands, whatever becomes of that: sweeps go on. */
async function tidyUp(list: List): Promise<void> {
  const removed = removeEmpty(list)
  // In a transaction of the caller's a failure has aborted it.
  await (list.connection.isTransaction ? removed : removed.catch(() => {}))
}

/** The denial that is certain whatever the missing rows hold, as looks see it. It makes no rows. */
async function denialOf(list: List, { looks }: Found): Promise<Decisions | undefined> {
  // Those that do not start full are made even by a denial, so that they begin to fill.
  if (!list.rows.every((row) => looks.has(row) || row.limiter.startsFull)) return undefined
  if (isEnough(list, (row) => looks.get(row) ?? fresh(row))) return undefined
  const seen = await askList(list, 'looks')
  const refusal = refusalBy(list, seen.looks)
  if (refusal) throw refusal
  if (learnPeriods(list, seen.looks) || isEnough(list, (row) => seen.looks.get(row) ?? fresh(row)))
    return undefined
  return { looks: seen.looks, taken: new Map() }
}

function isEnough({ rows, sharing }: List, lookAt: (row: RowRequest) => Decision): boolean {
  if (!sharing) return rows.every((row) => row.reporting.dryRun || fits(row, lookAt(row)))
  const sources = sharing.order.flatMap((row) => (row ? [{ call: row, snapshot: lookAt(row) }] : []))
  return sources.length < sharing.order.length || sharesOf(sources, sharing.rate) !== undefined
}

/** Why the database has refused the list: a row of another plan, or a charge by force that it cannot count. */
function refusalBy(list: List, looks: Found['looks']): RatelimitError | undefined {
  const isRefused = !list.sharing && isEnough(list, (row) => found(looks, row))
  const refusals = list.rows.map((row) => {
    const look = found(looks, row)
    const charge = isRefused ? partsOf(row, look).find(isForced) : undefined
    return (
      refusalOf({ ...row, purpose: 'look' }, look, 0) ?? (charge && refusalOn(charge, afterRefund(row, look)))
    )
  })
  return refusals.find((refusal) => refusal !== undefined)
}

/** A row that is not there. When it begins does not change what it has. */
function fresh({ limiter }: RowRequest): Decision {
  const now = Date.now()
  const params = paramsAt(limiter, now)
  return { now, params, state: freshState(limiter, now, params), granted: 0 }
}

/** The decisions on the rows that were charged. */
function takenBy({ rows, sharing }: List, looks: Found['looks']): ReadonlyMap<RowRequest, Decision> {
  const taken = new Map<RowRequest, Decision>()
  for (const row of rows) {
    const look = found(looks, row)
    const parts = sharing ? [row] : partsOf(row, look)
    // A charge finds the row as the refund before it leaves it.
    const { state }: Snapshot = parts.length > 1 ? afterRefund(row, look) : look
    if (parts.length > 0) taken.set(row, { ...look, state, isNew: look.isNew === true && isLook(row) })
  }
  return taken
}

/** Whether each row has a state by now. It is not known of rows that share a rate. */
function isCharged({ rows, sharing }: List, { isDone, looks }: Found): boolean {
  const has = (row: RowRequest) => partsOf(row, found(looks, row)).some(({ rate }) => rate > 0)
  return rows.every((row) => isLook(row) || (isDone && !sharing && has(row)))
}

/** The value, which is there unless the database's answer had no row for a key. */
export function found<K, V>(map: ReadonlyMap<K, V>, key: K): V {
  const value = map.get(key)
  if (value === undefined) throw notAsExpected('has no row for a key')
  return value
}
