import { onceFor } from '../base/once.ts'
import { mustHave, notAsExpected } from '../database/rows.ts'
import { type Row, run, runOnce } from '../database/run.ts'
import { kept, type Statement, type Statements, type Value } from '../database/statement.ts'
import { timed } from '../diagnostics.ts'
import type { Params } from '../limits/algorithm.ts'
import { appliesAt, paramsAt } from '../limits/limiter.ts'
import { listStatement } from '../sql/list.ts'
import { type ListRow, sentNumbersOf } from '../sql/list-row.ts'
import { ofGroup, type Payers } from '../sql/shares.ts'
import type { Decision } from '../store/call.ts'
import { insertEmpty, tablesOf } from '../store/empty-rows.ts'
import type { Table } from '../store/store.ts'
import { KeptLists } from './kept-lists.ts'
import type { Found, Group, List, RowRequest } from './sending.ts'
import { decisionAt, nameOfShape, numberIn, periodOf, sharedValuesOf } from './shape.ts'
import { type How, madeBefore, shapesOf } from './shapes.ts'
import { spareOf } from './shares.ts'

// The statements for a list of rows: each function sends the values and reads the answer of one.

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
