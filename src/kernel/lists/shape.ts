import type { RateLimitTable } from '../../../schema/index.ts'
import { exactNumbers, mustHave } from '../database/rows.ts'
import type { Row } from '../database/run.ts'
import type { Value } from '../database/statement.ts'
import type { Params } from '../limits/algorithm.ts'
import { NUMBERS } from '../sql/columns.ts'
import { OTHER } from '../sql/levels.ts'
import { at, knownGranted, type ListRow, type Pays, type SentNumber, THERE } from '../sql/list-row.ts'
import { endedIn, timeAndState } from '../store/answers.ts'
import { type Decision, limiterFor, reservedIn } from '../store/call.ts'
import { tableNameOf } from '../store/empty-rows.ts'
import { isLook } from './parts.ts'
import type { RowRequest } from './sending.ts'

// A row of a list in the form that its statement needs.

/** Whether the row must exist for the list to be charged. */
export function isNeeded(row: RowRequest): boolean {
  return !isLook(row) && (row.rate > 0 || !row.limiter.startsFull)
}

/** Whether the list's own statement inserts the row if it is missing. */
export function insertsIfMissing({ namespace }: RowRequest): boolean {
  return namespace.isUsuallyNew === true
}

/** Whether the whole rate is taken from the row, or nothing. */
export function isPlain({ does, refunds, asks, takesLess, isDry }: ListRow): boolean {
  return (does === 'take' || does === 'reserve') && asks === 'rate' && !takesLess && !refunds && !isDry
}

/** What the statement does to the row. A refund alone is an adjustment. */
export function shapeOf(
  row: RowRequest,
  table: RateLimitTable,
  looks: boolean,
  pays: Pays | undefined,
): ListRow {
  const { namespace, purpose, refund } = row
  const refusesOther = row.refusesOther || namespace.refusesOther === true
  const isOnlySeen = looks || isLook(row)
  const adjusts = purpose === 'look' || purpose === 'adjust'
  const givesBack = !isOnlySeen && (adjusts || refund < 0)
  const { algorithm, startsFull } = limiterFor(row.limiter, givesBack ? 'adjust' : 'take')
  return {
    table,
    rules: { algorithm, startsFull, refusesOther },
    injectedClock: namespace.clock !== undefined,
    does: isOnlySeen ? 'look' : adjusts ? 'adjust' : actionOf(row),
    refunds: !isOnlySeen && refund < 0 && purpose !== 'look',
    asks: looks || pays ? undefined : askedBy(row),
    takesLess: !isOnlySeen && row.atLeast !== null,
    isDry: !isOnlySeen && row.reporting.dryRun,
    isNeeded: !isOnlySeen && isNeeded(row),
    insertsIfMissing: !isOnlySeen && insertsIfMissing(row),
    inTime: !isOnlySeen && row.inTime,
    pays,
    // To change these later takes V8 a twentieth of the time that adding them would take.
    keepsVersion: false,
    notes: undefined,
  }
}

function actionOf(row: RowRequest): ListRow['does'] {
  if (row.purpose === 'add') return 'add'
  return reservedIn(row) > 0 ? 'reserve' : 'take'
}

/** The amount that the row must have to be charged. */
function askedBy({ needed, rate }: RowRequest): ListRow['asks'] {
  if (needed <= 0) return undefined
  return needed === rate ? 'rate' : 'needed'
}

/** The name of a shape: different shapes have different names. */
export function nameOfShape(row: RowRequest, shape: ListRow, isNeeded: boolean = shape.isNeeded): string {
  const { rules, injectedClock, does, refunds, asks, isDry, pays } = shape
  const flags =
    Number(rules.startsFull) +
    2 * Number(rules.refusesOther === true) +
    4 * Number(injectedClock) +
    8 * Number(refunds) +
    16 * Number(asks === 'rate') +
    32 * Number(isDry) +
    64 * Number(isNeeded) +
    128 * Number(asks === 'needed') +
    256 * Number(shape.takesLess) +
    512 * Number(shape.insertsIfMissing) +
    1024 * Number(pays === 'debt') +
    2048 * Number(pays === 'rest as debt') +
    4096 * Number(pays === 'available after debt') +
    8192 * Number(shape.inTime)
  return `${tableNameOf(row)} ${rules.algorithm.name} ${does} ${flags} ${shape.notes?.join('+') ?? ''}`
}

/** A time in the calendar period to send. For other limits the clock is not read. */
export function periodOf({ limiter, namespace }: RowRequest): number {
  return limiter.periodAt ? (namespace.clock?.() ?? Date.now()) : 0
}

/** The number that is sent of the row under that name. */
export function numberIn(row: RowRequest, name: SentNumber): number | null {
  // A row with nothing but a refund has no rate.
  return name === 'rate' && row.purpose === 'look' ? row.refund : row[name]
}

/** The values of the row that all lists share. */
export function sharedValuesOf(
  { namespace }: RowRequest,
  params: Params,
): readonly (readonly [string, Value])[] {
  return [['prefix', namespace.prefix], ['clock', namespace.clock?.() ?? null], ...Object.entries(params)]
}

/** The decision on the row at a place of the answer. Undefined if the row is needed and missing. */
export function decisionAt(
  answer: Row,
  place: number,
  row: RowRequest,
  shape: ListRow,
  params: Params,
): Decision | undefined {
  const { limiter } = row
  const of = (column: string) => answer[at(place, column)]
  if (shape.isNeeded && mustHave(of(THERE)) !== true) return undefined
  const numbers = exactNumbers(of(NUMBERS))
  const { now, state } = timeAndState(numbers, shape.rules.algorithm)
  return {
    now,
    state,
    granted: knownGranted(shape) ?? mustHave(numbers[0]),
    share: shape.pays && mustHave(numbers.at(-1)),
    params,
    ended: endedIn(of('ended'), limiter),
    isOther: of(OTHER) === true,
    // Other calls have inserted the row by now.
    isNew: isLook(row) && !row.limiter.startsFull && of('holds') !== true,
  }
}
