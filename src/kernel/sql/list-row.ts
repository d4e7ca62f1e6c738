import { and, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Expressions, Noted, Rules, StateColumn } from '../limits/algorithm.ts'
import { builder, isDecidedRow, isTheRow, name, type Parameters } from './builder.ts'
import type { CallColumn } from './calls.ts'
import { decisionNumbers, forEach, leftColumns, lockedColumns, NUMBERS, stateColumns } from './columns.ts'
import { isGranted, nextState, type OwnAction, type RowAction, storedRow } from './decided.ts'
import { type ColumnByName, numbersFrom, OTHER, paramsOf, stateOf } from './levels.ts'
import { lockedRow } from './rows.ts'

// One row of a list: how it is locked and written.

/** One row of a list. The text of the list's statement depends on these. */
export interface ListRow {
  readonly table: RateLimitTable
  readonly rules: Rules
  /** Whether the time is a parameter instead of the database's clock. */
  readonly injectedClock: boolean
  /** The last thing that the list does to the row. */
  readonly does: Exclude<RowAction, 'block' | OwnAction> | 'look'
  /** Whether something is given back first. */
  readonly refunds: boolean
  /**
   * The amount that must be available: the rate or another one. Undefined if the list does not depend on it.
   */
  readonly asks: 'rate' | 'needed' | undefined
  /** Whether the row may give less than the rate: all that it has. */
  readonly takesLess: boolean
  /** Whether the list is done even if the row does not have enough. */
  readonly isDry: boolean
  /** Whether the row must exist. A refund to a missing row does nothing. */
  readonly isNeeded: boolean
  /** Whether the row is usually missing. The statement then inserts it. */
  readonly insertsIfMissing: boolean
  /** Whether the list is not done if the window that paid is over. */
  readonly inTime: boolean
  /** Whether the version that is found is kept, to tell whether the row has changed since the snapshot. */
  readonly keepsVersion?: boolean
  /** What the row pays of the shared rate. Undefined if it pays its own rate. */
  readonly pays?: Pays | undefined
  /**
   * For a new row that notes what others have paid together: the places of those rows, or -1 for a limit that
   * has none. Undefined for other rows.
   */
  readonly notes?: readonly number[] | undefined
}

/**
 * What a row pays of a rate that rows share: what it has; the rest, as a debt; or its debt, which the next rows
 * pay too. These pay what they have `'available after debt'`, but nothing if all of it is needed for the debt.
 */
export type Pays = 'available' | 'debt' | 'available after debt' | 'rest as debt'

export type ChargedRow = ListRow & { readonly does: RowAction }

export const DONE = 'done'

export type SentNumber = Exclude<CallColumn, 'key' | 'calls' | 'atLeast' | 'within'>

export function sentNumbersOf({ rules, does, refunds, asks, isDry }: ListRow): readonly SentNumber[] {
  const { kind, settled } = rules.algorithm
  const adjusts = does === 'adjust' || refunds
  return [
    ...(does === 'look' ? [] : (['rate'] as const)),
    ...(asks === 'needed' ? (['needed'] as const) : []),
    ...(asks && isDry ? (['forced'] as const) : []),
    ...(refunds ? (['refund'] as const) : []),
    ...(adjusts ? ([kind === 'window' ? 'paidWindowStart' : 'refundableUntil'] as const) : []),
    ...(does === 'adjust' && settled ? (['reserved'] as const) : []),
  ]
}

/**
 * The name of a column of the row at that place. It has no underscore, because some drivers rename such names.
 */
export function at(place: number, column: string): string {
  names[place] ??= new Map()
  const known = names[place].get(column)
  if (known) return known
  const made = `${place}.${column.replaceAll('_', '')}`
  names[place].set(column, made)
  return made
}

/** The names that were made, because each answer needs them again. */
const names: Map<string, string>[] = []

export const THERE = 'there'

export const VERSION = 'version'

/** The columns of a found row. `isThere` if the query finds only existing rows. */
export function foundColumns(
  { table, rules, keepsVersion = false }: ListRow,
  place: number,
  isThere: boolean,
): string[] {
  const columns = [...(keepsVersion ? [VERSION] : []), ...Object.keys(lockedColumns(table, rules))]
  return (isThere ? columns : [THERE, ...columns]).map((column) => at(place, column))
}

/**
 * The query that finds the numbers of the row if the conditions hold. It locks the row unless the list only
 * looks at it. If it waits for the row, Postgres works out the numbers of the version that it has locked.
 */
export function foundRow(
  { table, rules, does, keepsVersion = false }: ListRow,
  place: number,
  parameters: Parameters,
  conditions: readonly (SQL | undefined)[],
  waits: boolean,
): SQL {
  const stored = lockedColumns(table, rules)
  const numbers = numbersFrom(rules, (column) => (stored[column] as SQL.Aliased<number>).sql as SQL<number>)
  const columns = Object.entries(numbers).map(
    ([column, value]) => [column, value.as(at(place, column))] as const,
  )
  const read = {
    [THERE]: sql`true`.as(at(place, THERE)),
    ...(keepsVersion ? { [VERSION]: sql`ctid`.as(at(place, VERSION)) } : {}),
    ...Object.fromEntries(columns),
  }
  const are = [isTheRow(table, parameters), ...conditions]
  if (does !== 'look') return lockedRow(table, read, are, waits)
  const row = builder
    .select(read)
    .from(table)
    .where(and(...are))
  return sql`${row.getSQL()} offset 0`
}

export const BEFORE = 'before_'

export interface PlacedRow {
  readonly row: ListRow
  readonly place: number
  readonly own: Parameters
}

/** 1 if the row is written when the list is done, 0 if not. Undefined if only the statement knows. */
export function knownGranted({ does, asks, isDry }: ListRow): number | undefined {
  if (does === 'look') return 0
  return does === 'adjust' || (isDry && asks) ? undefined : 1
}

export function takenAmount(
  { does, isDry, asks, takesLess }: ListRow,
  of: ColumnByName,
  parameters: Parameters,
): SQL<number> {
  if (does === 'look') return sql<number>`0::float8`
  const rate = parameters.number('rate')
  const amount = takesLess ? sql<number>`least(${rate}, ${of('available')})` : rate
  if (!isDry || !asks) return amount
  return sql`case when ${of('fits')} then ${amount} else ${parameters.number('forced')} end`
}

export function isChargedIn(row: ChargedRow, of: ColumnByName, isDone: SQL): SQL {
  if (knownGranted(row) !== undefined) return isDone
  return sql`${isDone} and ${isGranted(row.rules.algorithm, row.does, of)}`
}

export const PAID_COLUMNS: Readonly<Record<Noted, string>> = {
  rate: 'paid_rate',
  at: 'paid_at',
  before: 'paid_before',
  dryRun: 'paid_dry_run',
}

export const NOTED: readonly Noted[] = ['rate', 'at', 'before', 'dryRun']

/** The state of the row after the amount is taken. That of a row that notes is what others have paid. */
export function nextOf(
  { rules, does, notes }: ChargedRow,
  of: ColumnByName,
  amount: SQL<number>,
  parameters: Parameters,
): Expressions<StateColumn> {
  const { algorithm } = rules
  if (notes === undefined) return nextState(rules, does, amount, parameters, of)
  const paid = forEach(NOTED, (each) => of(PAID_COLUMNS[each]))
  return algorithm.sql.note?.(of('now'), paid, paramsOf(algorithm, parameters)) ?? stateOf(of)
}

/** The query that writes the next state of a row that is charged, or that is new and does not start full. */
export function updatedRow(
  { table, rules }: ChargedRow,
  { link, of }: { readonly link: string; readonly of: ColumnByName },
  next: Expressions<StateColumn>,
  isCharged: SQL,
  isThere: SQL | undefined,
  parameters: Parameters,
): SQL {
  const isOther = rules.refusesOther ? sql` and not ${of(OTHER)}` : sql``
  const isNew = sql`${of('holds')} is not true${isOther}`
  const isRow = parameters.isColumn('key')
    ? isDecidedRow(table, parameters, parameters.text('key'))
    : isTheRow(table, parameters)
  return builder
    .update(table)
    .set({ ...storedRow(rules, next, parameters), ...leftColumns(rules.algorithm, table) })
    .from(name(link))
    .where(and(isRow, isThere, rules.startsFull ? isCharged : sql`((${isCharged}) or (${isNew}))`))
    .getSQL()
}

/** The columns of the row in the answer, as they were before the list. Their names begin with its place. */
export function answerColumnsOf(row: ListRow, place: number, from: string): SQL[] {
  const { rules, refunds } = row
  const { algorithm } = rules
  const states = stateColumns(algorithm)
  const others = [
    ...(rules.startsFull ? [] : ['holds']),
    ...(rules.refusesOther ? [OTHER] : []),
    ...(algorithm.sql.ended ? ['ended'] : []),
  ]
  const more = [...(knownGranted(row) === undefined ? ['granted'] : []), ...(row.pays ? ['share'] : [])]
  const numbers = decisionNumbers(
    algorithm,
    more,
    (column) => name(at(place, refunds && states.includes(column) ? BEFORE + column : column), from),
    at(place, NUMBERS),
  )
  return [...others.map((column) => name(at(place, column), from)), numbers]
}
