import { onFirstUse } from '../base/once.ts'
import { type Connection, type Sending, telling } from '../database/connection.ts'
import { mustHave, notAsExpected, TWO_ROWS } from '../database/rows.ts'
import type { Row } from '../database/run.ts'
import type { Value } from '../database/statement.ts'
import { numberArray, textArray } from '../sql/calls.ts'
import { type ListRow, sentNumbersOf } from '../sql/list-row.ts'
import { listsStatement, sentByEach } from '../sql/lists.ts'
import { areInOnePlace, reachesAll } from '../store/empty-rows.ts'
import { type CallNumbers, numbersOf } from '../store/values.ts'
import { askList, foundIn, nameOfGroups, payersIn, runLists, sentOfGroups } from './list.ts'
import { type Found, type List, MAX_ROWS, type RowRequest } from './sending.ts'
import { nameOfShape, numberIn, periodOf, sharedValuesOf } from './shape.ts'
import { type How, shapesOf } from './shapes.ts'
import type { SharedList } from './shared-list.ts'

const rowByRow = /* @__PURE__ */ onFirstUse(() => import('./row-by-row.ts'))
const recording = /* @__PURE__ */ onFirstUse(() => import('./record-lists.ts'))

/** Charges the list, or only looks at it: by one statement, unless it has many rows, or on several servers. */
export async function sendList(list: List, how: How): Promise<Found> {
  const isOne =
    list.rows.length <= MAX_ROWS &&
    (reachesAll(list.rows) || (await areInOnePlace(list.rows, list.connection.db)))
  const ask = isOne ? askList : (await rowByRow()).askRowByRow
  if (how === 'looks' || !isRecorded(list)) return ask(list, how)
  const { recordLists } = await recording()
  const run = (connection: Connection) => ask({ ...list, connection }, how)
  return recordLists(list, run, (found) => [[list, found]])
}

/** Whether one of the limiters has a ledger. */
export function isRecorded({ rows }: Pick<List, 'rows'>): boolean {
  return rows.some(({ namespace }) => namespace.ledger !== undefined)
}

/** Charges lists of one kind. Returns the rows of those lists whose rows all exist and are free. */
export async function askLists(
  lists: readonly SharedList[],
  isCommon: readonly boolean[],
  insertsIfMissing: boolean,
  sending: Sending,
): Promise<readonly (Found | undefined)[]> {
  const [{ list: first, shapes: plain }] = lists as readonly [SharedList]
  const { rows, commit, groups } = first
  const shapes = insertsIfMissing ? shapesOf(first, 'skips', (place) => !isCommon[place]) : plain
  const payers = payersIn(groups, rows)
  const limits = rows.map((row, place) => {
    const own = lists.map(({ list }) => list.rows[place] as RowRequest)
    return numbersOf(own, ({ limiter }) => limiter, periodOf(row))
  })
  const values: Record<string, Value> = {}
  const sent = lists.map(({ list }) => sentOfGroups(list.groups))
  for (const [place, [name]] of sentOfGroups(groups).entries())
    values[name] = numberArray(sent.map((own) => mustHave(own[place])[1]))
  for (const [place, row] of rows.entries()) {
    const shape = shapes[place] as ListRow
    const { params, differing } = limits[place] as CallNumbers
    for (const [name, value] of [...sharedValuesOf(row, params), ...differing])
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
  const differing = limits.map((each) => each.differing.map(([name]) => name))
  const source = {
    name: `lists ${commit} ${isCommon.map(Number).join('')} ${nameOfGroups(payers)} ${rows.map((row, place) => `${nameOfShape(row, shapes[place] as ListRow)} ${differing[place]}`).join()}`,
    build: (guarded: boolean) =>
      listsStatement({ rows: shapes, groups: payers, commit, guarded, isCommon, differing }),
  }
  const run = async (connection: Connection) =>
    foundInAll(await runLists({ connection, rows }, values, source), lists, shapes, limits)
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
  limits: readonly CallNumbers[],
): readonly (Found | undefined)[] {
  const founds: (Found | undefined)[] = new Array(lists.length)
  for (const row of answer) {
    const place = mustHave(row['place'])
    if (place === null) continue
    const index = Number(place) - 1
    if (founds[index]) throw notAsExpected(TWO_ROWS)
    const params = limits.map((numbers) => numbers.at(index))
    founds[index] = foundIn(row, mustHave(lists[index]).list.rows, shapes, params)
  }
  return founds
}
