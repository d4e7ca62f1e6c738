import type { Params } from '../algorithms/algorithm.ts'
import { onceFor } from '../base/once-for.ts'
import { type Connection, telling } from '../database/connection.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { isTransient } from '../database/retry.ts'
import { mustHave, notAsExpected, TWO_ROWS } from '../database/rows.ts'
import type { Row } from '../database/run.ts'
import { isWithdrawal, newSending, type Sending } from '../database/sending.ts'
import type { Value } from '../database/statement.ts'
import type { RatelimitError } from '../errors.ts'
import { Blame } from '../runtime/blame.ts'
import type { Namespace } from '../runtime/call.ts'
import type { Watch } from '../runtime/long-waits.ts'
import { numberArray, textArray } from '../statements/calls.ts'
import type { ListRow } from '../statements/list-row.ts'
import { listsStatement, sentByEach } from '../statements/lists.ts'
import { mayNeedSeveral, type RowRequest } from './add-up.ts'
import { isHeld } from './all-or-nothing.ts'
import type { Queued } from './fitting-lists.ts'
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
import type { Found, List } from './sending.ts'
import { isNeeded, isPlain, nameOfShape, namesOf, paramsFor, sentOf, sharedValuesOf } from './shape.ts'
import type { Verdict } from './turns.ts'

// Lists that share a statement.

/** A list that may share a statement with others. */
export interface SharedList extends Queued {
  readonly list: List
  /** That of the limiter whose time bounds the list. */
  readonly watch: Watch
  readonly shapes: readonly ListRow[]
  /** Awaited before the first statement. */
  readonly prepare: (() => Promise<void>) | undefined
  isOver(): boolean
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
      `${nameOfShape(row, { ...(shapes[place] as ListRow), isNeeded: true })} ${idOf(row.namespace)} ${row.limiter.form ?? row.limiter.signature}`,
  )
  return {
    list,
    watch,
    shapes,
    prepare,
    isOver,
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
const idOf = onceFor((_: Namespace) => ++lastId)

/** Whether lists may have the row in common. */
function mayBeCommon({ does, makes }: ListRow): boolean {
  return does !== 'look' && !makes
}

/** Decides lists by one statement, as far as possible without waiting for a row. */
export async function decideLists(
  lists: readonly SharedList[],
  isCommon: readonly boolean[],
): Promise<readonly Verdict<Found>[]> {
  for (const { prepare } of lists) if (prepare) await prepare()
  const founds = await askTogether(lists, isCommon, false)
  const mayBeNew = lists.filter((each) => !hasAll(each, founds.get(each)) && canMake(each))
  for (const [each, found] of await askTogether(mayBeNew, isCommon, true)) founds.set(each, found)
  return lists.map((each) => {
    const found = founds.get(each)
    if (found && isDecided(each.list, found)) return { found, isDecided: true }
    // It has charged nothing, and waits for a slot of its own.
    if (!each.isOver()) each.list.onSend(false, true)
    return { found, isDecided: false }
  })
}

function hasAll({ list }: SharedList, found: Found | undefined): boolean {
  return found !== undefined && isWhole(list, found)
}

/** The rows that a statement found of the lists. If it `makes` rows, it inserts those that are missing. */
async function askTogether(
  lists: readonly SharedList[],
  isCommon: readonly boolean[],
  makes: boolean,
): Promise<Map<SharedList, Found>> {
  const sent = lists.filter(({ isOver }) => !isOver())
  const [first] = sent
  if (!first) return new Map()
  const sending = newSending()
  try {
    if (sent.length > 1) return await first.watch(() => askLists(sent, isCommon, makes, sending))
    const found = await first.watch(() => askAlone(first.list, makes))
    return new Map(found ? [[first, found]] : [])
  } catch (reason) {
    const error = toRatelimitError(reason)
    if (!isOfOne(error) && !isWithdrawal(error, sending)) throw error
    return new Map()
  }
}

/**
 * Whether a statement can insert the missing rows of the list: rows that start full, of which each pays its own
 * rate. Others are inserted without a state first, when the list goes on alone.
 */
function canMake({ list, shapes }: SharedList): boolean {
  if (list.groups.length > 0 || mayNeedSeveral(list.rows) || isRecorded(list)) return false
  const missing = shapes.filter(({ isNeeded, makes }) => isNeeded && !makes)
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
export async function askAlone(list: List, makes = false): Promise<Found | undefined> {
  if (!list.rows.every((row) => isLook(row) || isNeeded(row))) return undefined
  try {
    return await (makes ? askList(list, 'skips', true) : sendList(list, 'skips'))
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
  makes: boolean,
  sending: Sending,
): Promise<Map<SharedList, Found>> {
  const [{ list: first, shapes: plain }] = lists as readonly [SharedList]
  const { rows, commit, groups } = first
  const shapes = makes ? shapesOf(first, 'skips', (place) => !isCommon[place]) : plain
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
    const each = sentByEach(shape, isCommon[place] === true)
    for (const name of namesOf(shape)) {
      const all = () => lists.map(({ list }) => sentOf(list.rows[place] as RowRequest, name))
      values[`${place}.${name}`] = each.includes(name) ? arrayOf(all()) : sentOf(row, name)
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
    Array.from(founds, ([{ list }, found]) => [list, found] as const),
  )
}

/** Keys or numbers as an array. */
function arrayOf(values: readonly (string | number | null)[]): string {
  const isText = (value: string | number | null) => typeof value === 'string'
  return values.every(isText) ? textArray(values) : numberArray(values.filter((value) => !isText(value)))
}

function foundInAll(
  answer: readonly Row[],
  lists: readonly SharedList[],
  shapes: readonly ListRow[],
  params: readonly Params[],
): Map<SharedList, Found> {
  const found = new Map<SharedList, Found>()
  for (const row of answer) {
    const place = mustHave(row['place'])
    if (place === null) continue
    const each = mustHave(lists[Number(place) - 1])
    if (found.has(each)) throw notAsExpected(TWO_ROWS)
    found.set(each, foundIn(row, each.list.rows, shapes, params))
  }
  return found
}
