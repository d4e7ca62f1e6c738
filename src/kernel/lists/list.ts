import { sorted } from '../base/arrays.ts'
import { onceFor } from '../base/once.ts'
import { mustHave, notAsExpected } from '../database/rows.ts'
import { type Row, run, runOnce } from '../database/run.ts'
import { kept, type Statement, type Statements, type Value } from '../database/statement.ts'
import { timed } from '../diagnostics.ts'
import type { Params } from '../limits/algorithm.ts'
import { appliesAt, paramsAt } from '../limits/limiter.ts'
import { compareText } from '../sql/calls.ts'
import { listStatement } from '../sql/list.ts'
import { type ListRow, type Pays, sentNumbersOf } from '../sql/list-row.ts'
import { ofGroup, type Payers } from '../sql/shares.ts'
import type { Decision } from '../store/call.ts'
import { insertEmpty, tableNameOf, tablesOf } from '../store/empty-rows.ts'
import type { Table } from '../store/store.ts'
import { KeptLists } from './kept-lists.ts'
import { isLook } from './parts.ts'
import type { Found, Group, List, RowRequest } from './sending.ts'
import {
  decisionAt,
  insertsIfMissing,
  isPlain,
  nameOfShape,
  numberIn,
  periodOf,
  shapeOf,
  sharedValuesOf,
} from './shape.ts'
import { spareOf } from './shares.ts'

// The statements for a list of rows: each function sends the values and reads the answer of one.

/** Sorts rows in the order in which every list locks: by table, prefix and key, and rows of estimates last. */
export function rowsInLockOrder(rows: readonly RowRequest[]): readonly RowRequest[] {
  return sorted(rows, compareRows)
}

function compareRows(one: RowRequest, other: RowRequest): number {
  return (
    compareText(tableNameOf(one), tableNameOf(other)) ||
    Number(one.namespace.comesLast === true) - Number(other.namespace.comesLast === true) ||
    compareText(one.namespace.prefix, other.namespace.prefix) ||
    compareText(one.key, other.key)
  )
}

/** The lists that were sent to tables. */
const listsOf = onceFor((_: Statements) => new KeptLists())

/** Charges the list, or only looks at its rows. */
export async function askList(list: List, how: How, makesMissing = false): Promise<Found> {
  const { rows, commit, onSend } = list
  const groups = how === 'looks' ? [] : list.groups
  const payers = payersIn(groups, rows)
  const shapes = shapesOf({ ...list, groups }, how, makesMissing ? () => true : undefined)
  const params = rows.map((row) => paramsAt(row.limiter, list.periodsMs?.get(row.row) ?? periodOf(row)))
  const values: Record<string, Value> = Object.fromEntries(sentOfGroups(groups))
  for (const [place, row] of rows.entries()) {
    values[`${place}.key`] = row.key
    for (const name of sentNumbersOf(shapes[place] as ListRow))
      values[`${place}.${name}`] = numberIn(row, name)
    for (const [name, value] of sharedValuesOf(row, params[place] as Params))
      values[`${place}.${name}`] = value
  }
  onSend(how !== 'looks', how === 'waits')
  const source = {
    name: `${how} ${commit} ${nameOfGroups(payers)} ${shapes.map((shape, place) => nameOfShape(rows[place] as RowRequest, shape)).join()}`,
    build: (guarded: boolean) =>
      listStatement({ rows: shapes, groups: payers, commit, guarded, waits: how === 'waits' }),
  }
  const [answer, ...more] = await runLists(list, values, source)
  if (!answer || more.length > 0) throw notAsExpected('has not one row for the list')
  return foundIn(answer, rows, shapes, params)
}

/** Whether all rows were found. */
export function isWhole({ rows }: List, { looks }: Found): boolean {
  return looks.size === rows.length
}

/** Reads the answer for a list. */
export function foundIn(
  answer: Row,
  rows: readonly RowRequest[],
  shapes: readonly ListRow[],
  params: readonly Params[],
): Found {
  const looks = new Map<RowRequest, Decision>()
  rows.forEach((row, place) => {
    const decision = decisionAt(answer, place, row, shapes[place] as ListRow, params[place] as Params)
    if (decision) looks.set(row, decision)
  })
  return { isDone: mustHave(answer['done']) === true, looks }
}

/**
 * The shapes of the rows. Two declarations of one table count as one.
 *
 * @param isMade Whether the statement inserts the charged row at a place if it is missing. Default: if the row
 * is usually missing.
 */
export function shapesOf(
  { rows, groups, notes }: Pick<List, 'rows' | 'groups' | 'notes'>,
  how: How,
  isMade?: (place: number) => boolean,
): ListRow[] {
  const [first] = rows
  const tables = rows.every(({ table }) => table === first?.table) ? undefined : tablesOf(rows)
  const isMadeFirst = madeBefore(rows, how)
  const shapes = rows.map((row, place) => {
    const { table } = tables?.get(tableNameOf(row)) ?? row.table
    const plain = shapeOf(row, table, how === 'looks', paysOf(groups, row))
    const insertsIfMissing = plain.insertsIfMissing
      ? !isMadeFirst(row)
      : isMade?.(place) === true && isPlain(plain)
    if (how === 'looks' || !opens(row))
      return insertsIfMissing === plain.insertsIfMissing ? plain : { ...plain, insertsIfMissing }
    const noted = notes.get(row) ?? []
    return { ...plain, insertsIfMissing, notes: noted.map((each) => (each ? rows.indexOf(each) : -1)) }
  })
  if (!shapes.some(({ insertsIfMissing }) => insertsIfMissing)) return shapes
  const made = shapes.filter(({ insertsIfMissing }) => insertsIfMissing).length
  return shapes.map((shape) => {
    const keepsVersion = shape.does !== 'look' && (made > 1 || !shape.insertsIfMissing)
    return keepsVersion ? { ...shape, keepsVersion } : shape
  })
}

/** How a statement for a list treats rows that others hold. If it `looks`, it locks and charges nothing. */
export type How = 'looks' | 'skips' | 'waits'

/** Whether it makes the row of an estimate, which notes what others have paid. */
export function opens({ limiter }: RowRequest): boolean {
  return limiter.algorithm.sql.note !== undefined && limiter.limit > 0
}

/** What the row pays of the rate of its group. Undefined if it pays its own rate. */
function paysOf(groups: readonly Group[], row: RowRequest): Pays | undefined {
  const group = groups.find(({ order }) => order.includes(row))
  return group && (group.pays?.get(row) ?? 'available')
}

/** What is sent of the groups: the rate of each, and how much of it need not be paid. */
export function sentOfGroups(groups: readonly Group[]): readonly (readonly [string, number])[] {
  return groups.flatMap((group, place) => [
    [ofGroup(place, 'rate'), group.rate] as const,
    [ofGroup(place, 'spare'), spareOf(group)] as const,
  ])
}

/** The name of groups: different groups have different names, also those without rows. */
export function nameOfGroups(payers: readonly Payers[]): string {
  return payers.map((places) => `[${places.join()}]`).join('')
}

/** The places of the rows of each group. */
export function payersIn(groups: readonly Group[], rows: readonly RowRequest[]): Payers[] {
  return groups.map(({ order }) => order.map((row) => (row ? rows.indexOf(row) : -1)))
}

/** Runs the statement of one list or of many. Connections keep it if it is sent often. */
export function runLists(
  { connection, rows }: Pick<List, 'connection' | 'rows'>,
  values: Record<string, Value>,
  { name, build }: { readonly name: string; readonly build: (guarded: boolean) => Statement },
): Promise<readonly Row[]> {
  const tables = [...tablesOf(rows).values()]
  const [{ statements }] = tables as [Table]
  // Without a session that keeps statements, a list needs no room.
  const { texts, isKept } = listsOf(statements).send(name, connection.session ? rows.length : undefined)
  const text = (guarded: boolean) => kept(texts, String(guarded), () => build(guarded))
  const sizes = tables.map(({ size }) => size)
  const about = { prefix: undefined, statement: 'list', keys: rows.length } as const
  return timed(about, () =>
    isKept ? run(connection, sizes, text, values, {}) : runOnce(connection, text(false), values),
  )
}

/** Whether the guessed calendar period of a row was wrong. Notes the right ones for the next statement. */
export function learnPeriods(list: List, looks: Found['looks']): boolean {
  let isWrong = false
  for (const row of list.rows) {
    const look = row.limiter.periodAt && looks.get(row)
    if (!look || appliesAt(look.params, look.now)) continue
    list.periodsMs ??= new Map()
    list.periodsMs.set(row.row, look.now)
    isWrong = true
  }
  return isWrong
}

/**
 * Inserts the missing rows, and returns how many there were. If it `waits`, it also locks all rows, in the
 * order of every list.
 */
export function makeRows({ connection, rows, commit, onSend }: List, waits: boolean): Promise<number> {
  const needed = rows.filter(madeBefore(rows, waits ? 'waits' : 'skips'))
  return insertEmpty(needed, connection, commit, waits, () => onSend(false, waits))
}

/**
 * Which rows are inserted by a statement of their own if they are missing, before the list is charged.
 *
 * A statement that inserts several rows fails if another transaction was faster, so that none of them stays. A
 * statement that waits must not fail, because it may be in a caller's transaction.
 */
function madeBefore(rows: readonly RowRequest[], how: How): (row: RowRequest) => boolean {
  const mayMake = how !== 'waits' || rows.filter((row) => insertsIfMissing(row) && !isLook(row)).length < 2
  return (row) => !isLook(row) && !(insertsIfMissing(row) && mayMake)
}
