import type { Params } from '../algorithms/algorithm.ts'
import { paramsAt } from '../algorithms/limiter.ts'
import { mustHave } from '../database/rows.ts'
import type { Row } from '../database/run.ts'
import type { Value } from '../database/statement.ts'
import { endedIn, stateBy } from '../runtime/ask.ts'
import { type Decision, reservedIn } from '../runtime/call.ts'
import { SQL_NAMES } from '../statements/columns.ts'
import { OTHER } from '../statements/levels.ts'
import { at, type ListRow, numbersOf, THERE } from '../statements/list-row.ts'
import { type RowRequest, tableNameOf } from './add-up.ts'
import { isLook } from './parts.ts'

// A row of a list, as its statement sees it.

/** Whether the row has to be there for the list to be charged. */
export function isNeeded(row: RowRequest): boolean {
  return !isLook(row) && (row.rate > 0 || !row.limiter.startsFull)
}

/** What is done to a row: giving back alone is an adjustment. */
export function shapeOf(row: RowRequest, looks: boolean, isSharing: boolean): ListRow {
  const { table, limiter, namespace, reporting } = row
  const refusesOther = row.refusesOther === true || namespace.refusesOther === true
  const rules = refusesOther ? { ...limiter, refusesOther } : limiter
  const common = { table: table.table, rules, injectedClock: namespace.clock !== undefined }
  if (looks || isLook(row)) {
    return { ...common, does: 'look', refunds: false, asks: false, isDry: false, isNeeded: false }
  }
  const does =
    row.purpose === 'look' || row.purpose === 'adjust' ? 'adjust' : reservedIn(row) > 0 ? 'reserve' : 'take'
  return {
    ...common,
    does,
    refunds: row.refund < 0 && row.purpose !== 'look',
    asks: row.needed > 0 && !isSharing,
    isDry: reporting.dryRun,
    isNeeded: isNeeded(row),
  }
}

/** What tells apart the shapes of rows. */
export function nameOfShape(row: RowRequest, shape: ListRow): string {
  const { rules, injectedClock, does, refunds, asks, isDry } = shape
  const flags = [
    rules.startsFull,
    rules.refusesOther === true,
    injectedClock,
    refunds,
    asks,
    isDry,
    shape.isNeeded,
  ]
  return `${tableNameOf(row)} ${rules.algorithm.name} ${does} ${flags.map(Number).join('')}`
}

/** The numbers of the row's limiter at the time of its statement. `periodMs` is in the calendar period to ask for. */
export function paramsFor({ limiter, namespace }: RowRequest, periodMs: number | undefined): Params {
  if (!limiter.periodAt) return limiter.params
  return paramsAt(limiter, periodMs ?? namespace.clock?.() ?? Date.now())
}

/** What is sent of the row for each list. */
export function valuesOf(row: RowRequest, shape: ListRow): readonly (readonly [string, Value])[] {
  const rate = row.purpose === 'look' ? row.refund : row.rate
  return [
    ['key', row.key],
    ...numbersOf(shape).map((each) => [each, each === 'rate' ? rate : row[each]] as const),
  ]
}

/** What is sent of the row for all lists. */
export function sharedValuesOf(
  { namespace }: RowRequest,
  params: Params,
): readonly (readonly [string, Value])[] {
  return [['prefix', namespace.prefix], ['clock', namespace.clock?.() ?? null], ...Object.entries(params)]
}

/** What an answer says of the row at a place; undefined if the row has to be there and is not. */
export function decisionAt(
  answer: Row,
  place: number,
  { limiter }: RowRequest,
  { isNeeded }: ListRow,
  params: Params,
): Decision | undefined {
  const of = (column: string) => answer[at(place, column)]
  if (isNeeded && mustHave(of(THERE)) !== true) return undefined
  return {
    now: Number(mustHave(of('now'))),
    granted: Number(mustHave(of('granted'))),
    state: stateBy((column) => of(SQL_NAMES[column]), limiter),
    params,
    ended: endedIn(of('ended'), limiter),
    isOther: of(OTHER) === true,
    isNew: !limiter.startsFull && of('holds') !== true,
  }
}
