import { lru } from 'tiny-lru'
import { isWithdrawal, newSending } from '../database/connection.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { isTransient } from '../database/retry.ts'
import type { RatelimitError } from '../errors.ts'
import { causeOf } from '../queue/blame.ts'
import type { Verdict } from '../queue/waiting-list.ts'
import { isHeld } from './all-or-nothing.ts'
import { askLists } from './ask-lists.ts'
import { askList, isWhole, learnPeriods } from './list.ts'
import { isLook } from './parts.ts'
import { isRecorded, sendList } from './send-list.ts'
import { type Found, type List, mayNeedSeveral } from './sending.ts'
import { isNeeded, isPlain } from './shape.ts'
import type { SharedList } from './shared-list.ts'

// Lists that share a statement.

/**
 * Decides lists by one statement, as far as possible without waiting for a row.
 *
 * @param tell Called for a list that is decided while others need a second statement.
 */
export async function decideLists(
  lists: readonly SharedList[],
  isCommon: readonly boolean[],
  tell: (place: number, found: Found) => void,
): Promise<readonly Verdict<Found>[]> {
  for (const each of lists) {
    each.found = undefined
    if (each.prepare) await each.prepare()
  }
  const [first] = lists as readonly [SharedList]
  const atOnce = makesAtOnce(first)
  await askTogether(lists, isCommon, atOnce)
  const mayBeNew =
    atOnce || !canMake(first) ? [] : lists.filter(({ list, found }) => !found || !isWhole(list, found))
  if (mayBeNew.length * 2 > lists.length) newKinds.set(first.kind, AT_ONCE)
  let failure: RatelimitError | undefined
  if (mayBeNew.length > 0) {
    for (const [place, { list, found }] of lists.entries())
      if (found && isDecided(list, found)) tell(place, found)
    // The first statement may have charged the other lists, so an error of the second one is not theirs.
    failure = await askTogether(mayBeNew, isCommon, true).then(() => undefined, toRatelimitError)
  }
  return lists.map((each) => {
    const { found } = each
    if (failure && mayBeNew.includes(each)) return { found, isDecided: false, failure }
    if (found && isDecided(each.list, found)) return { found, isDecided: true }
    // It has charged nothing, and waits for a slot of its own.
    if (!each.isOver()) each.list.onSend(false, true)
    return { found, isDecided: false }
  })
}

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
    const founds = await first.watch(async () =>
      sent.length > 1
        ? askLists(sent, isCommon, insertsIfMissing, sending)
        : [await askAlone(first.list, insertsIfMissing)],
    )
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
export function isDecided(list: List, found: Found): boolean {
  return isWhole(list, found) && !learnPeriods(list, found.looks)
}

/**
 * Sends the list alone. Undefined if another transaction is inserting one of its rows. If some of its rows need
 * not exist, only waiting for them shows whether they do.
 */
export async function askAlone(list: List, insertsIfMissing = false): Promise<Found | undefined> {
  if (!list.rows.every((row) => isLook(row) || isNeeded(row))) return undefined
  try {
    return await (insertsIfMissing ? askList(list, 'skips', true) : sendList(list, 'skips'))
  } catch (error) {
    if (isHeld(error)) return undefined
    throw error
  }
}

/**
 * Whether one of the lists may be the cause, or lost against another transaction. Postgres has then charged
 * nothing, and each list is sent alone.
 */
function isOfOne(error: RatelimitError): boolean {
  return isTransient(error) || causeOf(error, true) !== 'all'
}
