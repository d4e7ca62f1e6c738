import { lru } from 'tiny-lru'
import { isWithdrawal, newSending } from '../database/connection.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { isTransient, retrying } from '../database/retry.ts'
import type { RatelimitError } from '../errors.ts'
import { causeOf } from '../queue/blame.ts'
import type { DecideTogether } from '../queue/turns.ts'
import { chargeFreeList, chargeList, needsAll, untilFree } from './all-or-nothing.ts'
import { askList, isWhole, learnPeriods } from './list.ts'
import { askLists, isRecorded, sendList } from './send-list.ts'
import { type Found, type List, mayNeedSeveral } from './sending.ts'
import { isPlain } from './shape.ts'
import type { SentList, SharedList } from './shared-list.ts'

// Lists that share a statement.

/** Decides lists by one statement, as far as possible without waiting for a row. */
export const decideLists: DecideTogether<SharedList, Found> = async (lists, isCommon, tell) => {
  for (const each of lists) {
    each.found = undefined
    for (const ensureTables of each.ensures) await ensureTables()
  }
  const [first] = lists as readonly [SharedList]
  const atOnce = makesAtOnce(first)
  await askTogether(lists, isCommon, atOnce)
  const mayBeNew =
    atOnce || !canMake(first) ? [] : lists.filter(({ list, found }) => !found || !isWhole(list, found))
  if (mayBeNew.length * 2 > lists.length) newKinds.set(first.kind, AT_ONCE)
  const tellIfDecided = ({ list, found, ended }: SharedList, place: number): boolean => {
    if (!found || !isDecided(list, found)) return false
    ended()
    tell(place, found)
    return true
  }
  let failure: RatelimitError | undefined
  if (mayBeNew.length > 0) {
    // Those that are decided need not wait for the second statement.
    for (const [place, each] of lists.entries()) tellIfDecided(each, place)
    // The first statement may have charged the other lists, so an error of the second one is not theirs.
    failure = await askTogether(mayBeNew, isCommon, true).then(() => undefined, toRatelimitError)
  }
  for (const [place, each] of lists.entries()) {
    if (failure && mayBeNew.includes(each)) tell(place, failure)
    // One that is undecided has charged nothing, and waits for a slot of its own.
    else if (!tellIfDecided(each, place) && !each.isOver()) each.list.onSend(false, true)
  }
}

/** Decides a list by itself: without a wait for a row, and if others hold one, with a wait. */
export function decideAlone(
  { list, watch, found, ended }: SentList,
  mayWait: (held: readonly string[]) => Promise<void>,
): Promise<Found> {
  let first = found
  const charging = async () => {
    list.onSend(false, false)
    const free = await retrying(() => {
      const given = first
      first = undefined
      return chargeFreeList(list, given)
    })
    if (free) return free
    list.onSend(false, true)
    await mayWait(list.held.map(({ row }) => row))
    while (list.held.length > 0) {
      const begunAt = performance.now()
      await retrying(() => untilFree(list))
      if (performance.now() - begunAt < BRIEF_MS) break
      const freed = await retrying(() => chargeFreeList(list))
      if (freed) return freed
    }
    return retrying(() => chargeList(list))
  }
  return watch(charging).finally(ended)
}

/**
 * Only statements hold a row so briefly, and the next one may hold it at once. So the list gets in line behind
 * them, by a statement that waits for all rows.
 */
const BRIEF_MS = 50

/**
 * How many statements insert missing rows at once, until one shows again whether most lists have some. One that
 * may insert costs more where the rows exist.
 */
const AT_ONCE = 7

/** The kinds of lists most of which have missing rows, and how many statements still insert these at once. */
const newKinds = /* @__PURE__ */ lru<number>(100)

/** Whether a statement for lists of this kind inserts rows without one before that finds them missing. */
function makesAtOnce({ kind }: SharedList): boolean {
  const left = newKinds.get(kind) ?? 0
  if (left > 0) newKinds.set(kind, left - 1)
  return left > 0
}

/** Finds the rows of the lists by a statement. With `insertsIfMissing` it inserts those that are missing. */
async function askTogether(
  lists: readonly SharedList[],
  isCommon: readonly boolean[],
  insertsIfMissing: boolean,
): Promise<void> {
  const sent = lists.filter(({ isOver }) => !isOver())
  const [first] = sent
  if (!first) return
  const sending = newSending()
  try {
    const founds = await first.watch(async () => {
      if (sent.length > 1) return askLists(sent, isCommon, insertsIfMissing, sending)
      if (!needsAll(first.list)) return []
      return [await (insertsIfMissing ? askList(first.list, 'skips', true) : sendList(first.list, 'skips'))]
    })
    for (const [place, each] of sent.entries()) each.found = founds[place] ?? each.found
  } catch (reason) {
    const error = toRatelimitError(reason)
    if (!isOfOne(error) && !isWithdrawal(error, sending)) throw error
  }
}

/**
 * Whether a statement can insert the missing rows of the list: rows that start full, of which each pays its own
 * rate. Others are inserted without a state first, when the list goes on alone.
 */
function canMake({ list, shapes }: SharedList): boolean {
  if (list.groups.length > 0 || mayNeedSeveral(list.rows) || isRecorded(list)) return false
  const missing = shapes.filter(({ isNeeded, insertsIfMissing }) => isNeeded && !insertsIfMissing)
  return missing.length > 0 && missing.every((shape) => isPlain(shape) && shape.rules.startsFull)
}

/** Whether all rows were found, each in the calendar period that was sent. */
function isDecided(list: List, found: Found): boolean {
  return isWhole(list, found) && !learnPeriods(list, found.looks)
}

/**
 * Whether one of the lists may be the cause, or lost against another transaction. Postgres has then charged
 * nothing, and each list is sent alone.
 */
function isOfOne(error: RatelimitError): boolean {
  return isTransient(error) || causeOf(error, true) !== 'all'
}
