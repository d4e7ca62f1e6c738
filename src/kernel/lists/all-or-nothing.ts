import { toRatelimitError } from '../database/database-error.ts'
import { untilDone } from '../database/retry.ts'
import { notAsExpected } from '../database/rows.ts'
import { freshState, paramsAt } from '../limits/limiter.ts'
import { causeOf } from '../queue/blame.ts'
import type { Decision } from '../store/call.ts'
import { insertEmpty, removeEmpty } from '../store/empty-rows.ts'
import { found, isEnough, refusalBy } from './enough.ts'
import { learnPeriods, makeRows } from './list.ts'
import { isLook, partsOf } from './parts.ts'
import { sendList } from './send-list.ts'
import type { Found, List, RowRequest } from './sending.ts'
import { isNeeded } from './shape.ts'

const NO_LOOKS: Found['looks'] = new Map()

/**
 * Charges all rows, or none. If the rows exist, it is one statement. If rows are missing, two more statements
 * insert them and try again. Each may wait for rows that others hold, and then holds no lock that comes later
 * in the order of the locks.
 */
export async function chargeList(list: List): Promise<Found> {
  // It has only limits without rows, or funds without anything to pay with.
  if (list.rows.length === 0) return { isDone: isEnough(list, NO_LOOKS), looks: NO_LOOKS }
  return untilDone('inserted and removed the rows of new keys', async () => {
    const decisions = await decisionsBy(list, 'waits')
    if (!decisions && (await makeRows(list, true)) > 0) list.hasMade = true
    return decisions
  })
}

/**
 * Charges all rows, or none, as {@link chargeList} does, but waits for no row. Undefined if others hold one.
 *
 * @param first The answer of the first statement, if it was sent already.
 */
export async function chargeFreeList(list: List, first?: Found): Promise<Found | undefined> {
  if (!first && !needsAll(list)) return undefined
  try {
    const decisions = await decisionsBy(list, 'skips', first)
    if (decisions) return decisions
    // If none is missing, others hold one.
    if ((await makeRows(list, false)) === 0) return undefined
    list.hasMade = true
    return await decisionsBy(list, 'skips')
  } catch (error) {
    if (isHeld(error)) return undefined
    throw error
  }
}

/**
 * Waits for the rows that others hold, one after the other. Meanwhile it holds no other row: all lists would
 * wait that have that row too.
 */
export async function untilFree(list: List): Promise<void> {
  const { connection, commit, onSend } = list
  for (const row of list.held) {
    if ((await insertEmpty([row], connection, commit, true, () => onSend(false, true))) > 0)
      list.hasMade = true
  }
}

/** Whether all rows have to exist. If some need not, only waiting for them shows whether they do. */
export function needsAll({ rows }: List): boolean {
  return rows.every((row) => isLook(row) || isNeeded(row))
}

/** Whether another transaction is inserting one of the rows, or has changed it. */
function isHeld(error: unknown): boolean {
  return causeOf(toRatelimitError(error), true) === 'held'
}

/**
 * The decisions that a statement has made. Undefined if it did not find all rows, or if the calendar period of
 * one was wrong again. It has then charged nothing.
 */
async function decisionsBy(list: List, how: 'waits' | 'skips', answer?: Found): Promise<Found | undefined> {
  let found = answer ?? (await sendList(list, how))
  // With the right calendar periods.
  if (learnPeriods(list, found.looks)) found = await sendList(list, how)
  if (learnPeriods(list, found.looks)) return undefined
  list.held = list.rows.filter((row) => !found.looks.has(row))
  if (list.held.length > 0) return denialFound(list, found)
  if (list.hasMade && !isCharged(list, found)) await tidyUp(list)
  return checkedWhole(list, found)
}

/**
 * What was found of a list, if that was all rows.
 *
 * @throws RatelimitError if the database has refused the list.
 */
export function checkedWhole(list: List, whole: Found): Found {
  const { isDone, looks } = whole
  const refusal = isDone ? undefined : refusalBy(list, looks)
  if (refusal) throw refusal
  // The same formulas give the answers. If the two disagree, one of them is wrong.
  if (isDone !== isEnough(list, looks)) throw notAsExpected('contradicts itself')
  return whole
}

/**
 * Removes rows that were inserted for nothing. If that fails, the decision stands, and a sweep removes the
 * rows.
 */
async function tidyUp(list: List): Promise<void> {
  const needed = list.rows.filter((row) => !isLook(row))
  const removed = removeEmpty(needed, list.connection)
  // In a caller's transaction, a failure has aborted the transaction.
  await (list.connection.isTransaction ? removed : removed.catch(() => {}))
}

/**
 * The denial, or the refusal, if it is certain by the existing rows. It inserts no rows. A row that was not
 * found may be held by others, so a look shows what all rows have.
 */
async function denialFound(list: List, { looks }: Found): Promise<Found | undefined> {
  // Even a denial inserts rows that do not start full, so that they begin to fill.
  if (!list.rows.every((row) => looks.has(row) || row.limiter.startsFull)) return undefined
  if (mayBeDone(list, looks)) return undefined
  const seen = await sendList(list, 'looks')
  if (learnPeriods(list, seen.looks) || mayBeDone(list, seen.looks)) return undefined
  if (list.hasMade) await tidyUp(list)
  return checkedWhole(list, { isDone: false, looks: seen.looks })
}

/** Whether the rows have enough, and none refuses the list, if those that are not in the looks are missing. */
function mayBeDone(list: List, looks: Found['looks']): boolean {
  const all = new Map(list.rows.map((row) => [row, looks.get(row) ?? freshDecision(row)]))
  return isEnough(list, all) && !refusalBy(list, all)
}

/** A missing row. The time at which it begins does not matter for the amount that it has. */
function freshDecision({ limiter }: RowRequest): Decision {
  const now = Date.now()
  const params = paramsAt(limiter, now)
  return { now, params, state: freshState(limiter, now, params), granted: 0 }
}

/** Whether each row has a state by now. */
function isCharged({ rows }: List, { isDone, looks }: Found): boolean {
  const has = (row: RowRequest) => partsOf(row, found(looks, row)).some(({ call }) => call.rate > 0)
  return rows.every((row) => isLook(row) || (isDone && has(row)))
}
