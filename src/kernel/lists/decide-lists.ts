import { lru } from 'tiny-lru'
import { onceFor } from '../base/once.ts'
import { type Connection, isWithdrawal, newSending, type Sending, telling } from '../database/connection.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { isTransient } from '../database/retry.ts'
import { mustHave, notAsExpected, TWO_ROWS } from '../database/rows.ts'
import type { Row } from '../database/run.ts'
import type { Value } from '../database/statement.ts'
import type { RatelimitError } from '../errors.ts'
import type { Params } from '../limits/algorithm.ts'
import { Blame } from '../queue/blame.ts'
import type { QueuedList } from '../queue/fitting-lists.ts'
import type { Verdict } from '../queue/waiting-list.ts'
import type { Watch } from '../queue/waits.ts'
import { numberArray, textArray } from '../sql/calls.ts'
import { type ListRow, sentNumbersOf } from '../sql/list-row.ts'
import { listsStatement, sentByEach } from '../sql/lists.ts'
import type { Namespace } from '../store/call.ts'
import { isHeld } from './all-or-nothing.ts'
import {
  askList,
  foundIn,
  isWhole,
  learnPeriods,
  nameOfGroups,
  payersIn,
  runLists,
  sentOfGroups,
  shapesOf,
} from './list.ts'
import { isLook } from './parts.ts'
import { isRecorded, recording, sendList } from './send-list.ts'
import { type Found, type List, mayNeedSeveral, type RowRequest } from './sending.ts'
import { isNeeded, isPlain, nameOfShape, numberIn, paramsFor, sharedValuesOf } from './shape.ts'

// Lists that share a statement.

/** A list that may share a statement with others. */
export interface SharedList extends QueuedList {
  readonly list: List
  /** That of the limiter whose time bounds the list. */
  readonly watch: Watch
  readonly shapes: readonly ListRow[]
  /** Awaited before the first statement. */
  readonly prepare: (() => Promise<void>) | undefined
  isOver(): boolean
  /** What the last statement has found. */
  found: Found | undefined
}

/** The list in the form in which it waits for its turn. */
export function queued(
  list: List,
  watch: Watch,
  prepare: SharedList['prepare'],
  isOver: () => boolean,
): SharedList {
  const { rows, groups, connection, commit } = list
  const shapes = shapesOf(list, 'skips')
  const about = rows.map(
    (row, place) =>
      // A shared statement has an answer only if the row exists, whether the list needs it or not.
      `${nameOfShape(row, shapes[place] as ListRow, true)} ${namespaceNumber(row.namespace)} ${row.limiter.form ?? row.limiter.signature}`,
  )
  return {
    list,
    watch,
    shapes,
    prepare,
    isOver,
    found: undefined,
    rows: rows.map(({ row }) => row),
    kind: mayNeedSeveral(rows)
      ? `alone ${++lastId}`
      : `${connection.keeping.wish} ${commit} ${nameOfGroups(payersIn(groups, rows))} ${about.join()}`,
    shares: rows.map((row, place) =>
      groups.length === 0 && mayBeCommon(shapes[place] as ListRow) ? row.paidWindowStart : undefined,
    ),
  }
}

let lastId = 0

/** A number for each namespace. Lists with different namespaces may have different clocks. */
const namespaceNumber = onceFor((_: Namespace) => ++lastId)

/** Whether lists may have the row in common. */
function mayBeCommon({ does, insertsIfMissing }: ListRow): boolean {
  return does !== 'look' && !insertsIfMissing
}

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
  const mayBeNew = atOnce || !canMake(first) ? [] : lists.filter((each) => !hasAll(each))
  if (mayBeNew.length * 2 > lists.length) newKinds.set(first.kind, AT_ONCE)
  let failure: RatelimitError | undefined
  if (mayBeNew.length > 0) {
    for (const [place, { list, found }] of lists.entries())
      if (found && isDecided(list, found)) tell(place, found)
    // The first statement may have charged the other lists, so an error of the second one is not theirs.
    failure = await errorOf(askTogether(mayBeNew, isCommon, true))
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

async function errorOf(work: Promise<void>): Promise<RatelimitError | undefined> {
  try {
    await work
    return undefined
  } catch (reason) {
    return toRatelimitError(reason)
  }
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

function hasAll({ list, found }: SharedList): boolean {
  return found !== undefined && isWhole(list, found)
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
  return isTransient(error) || new Blame(true).of(error) !== 'all'
}

/** Charges lists of one kind. Returns the rows of those lists whose rows all exist and are free. */
async function askLists(
  lists: readonly SharedList[],
  isCommon: readonly boolean[],
  insertsIfMissing: boolean,
  sending: Sending,
): Promise<readonly (Found | undefined)[]> {
  const [{ list: first, shapes: plain }] = lists as readonly [SharedList]
  const { rows, commit, groups } = first
  const shapes = insertsIfMissing ? shapesOf(first, 'skips', (place) => !isCommon[place]) : plain
  const payers = payersIn(groups, rows)
  const params = rows.map((row) => paramsFor(row, undefined))
  const values: Record<string, Value> = {}
  const sent = lists.map(({ list }) => sentOfGroups(list.groups))
  for (const [place, [name]] of sentOfGroups(groups).entries())
    values[name] = numberArray(sent.map((own) => mustHave(own[place])[1]))
  for (const [place, row] of rows.entries()) {
    const shape = shapes[place] as ListRow
    for (const [name, value] of sharedValuesOf(row, params[place] as Params))
      values[`${place}.${name}`] = value
    const own = lists.map(({ list }) => list.rows[place] as RowRequest)
    const each = sentByEach(shape, isCommon[place] === true)
    values[`${place}.key`] = each.includes('key') ? textArray(own.map(({ key }) => key)) : row.key
    for (const name of sentNumbersOf(shape)) {
      const all = () => numberArray(own.map((one) => numberIn(one, name)))
      values[`${place}.${name}`] = each.includes(name) ? all() : numberIn(row, name)
    }
  }
  for (const { list } of lists) list.onSend(true, false, sending)
  const source = {
    name: `lists ${commit} ${isCommon.map(Number).join('')} ${nameOfGroups(payers)} ${rows.map((row, place) => nameOfShape(row, shapes[place] as ListRow)).join()}`,
    build: (guarded: boolean) => listsStatement({ rows: shapes, groups: payers, commit, guarded, isCommon }),
  }
  const run = async (connection: Connection) =>
    foundInAll(await runLists({ connection, rows }, values, source), lists, shapes, params)
  const own = { ...first, connection: telling(first.connection, sending) }
  if (!isRecorded(own)) return run(own.connection)
  return (await recording()).recordLists(own, run, (founds) =>
    lists.flatMap(({ list }, place) => {
      const found = founds[place]
      return found ? [[list, found] as const] : []
    }),
  )
}

function foundInAll(
  answer: readonly Row[],
  lists: readonly SharedList[],
  shapes: readonly ListRow[],
  params: readonly Params[],
): readonly (Found | undefined)[] {
  const founds: (Found | undefined)[] = new Array(lists.length)
  for (const row of answer) {
    const place = mustHave(row['place'])
    if (place === null) continue
    const index = Number(place) - 1
    if (founds[index]) throw notAsExpected(TWO_ROWS)
    founds[index] = foundIn(row, mustHave(lists[index]).list.rows, shapes, params)
  }
  return founds
}
