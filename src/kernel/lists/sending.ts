import type { ReportedFacts } from '../answers/thresholds.ts'
import { sorted } from '../base/arrays.ts'
import type { Connection, Sending } from '../database/connection.ts'
import { compareText } from '../sql/calls.ts'
import type { Commit } from '../sql/guard.ts'
import type { Pays } from '../sql/list-row.ts'
import type { Decision, Namespace, Request } from '../store/call.ts'
import { reachesAll, tableNameOf } from '../store/empty-rows.ts'
import type { Entry } from '../store/entry.ts'
import type { Table } from '../store/store.ts'

/** The request for one row: of one call, or the sum of several. */
export interface RowRequest extends Request {
  /** The unique name of the row in the database. */
  readonly row: string
  readonly table: Table
  readonly namespace: Namespace
  readonly reporting: ReportedFacts
  /** The amount that is given back before anything is taken: 0 or less. */
  readonly refund: number
  /** How much must be available after the refund for all of the calls to be allowed. */
  readonly needed: number
  /** The part of the rate that is taken by force. */
  readonly forced: number
  /** The kind of its entry. Default: by the rate. */
  readonly kind: Entry['kind'] | undefined
  /** Whether the list is not done if the window that paid is over. */
  readonly inTime: boolean
}

/**
 * Rows that pay one rate together, in their `order`. An undefined entry is a limit without a row, and pays all
 * the rest.
 */
export interface Group {
  readonly rate: number
  /** The least that they have to pay together. */
  readonly least: number
  readonly order: readonly (RowRequest | undefined)[]
  /** What rows pay. Default: what they have. */
  readonly pays?: ReadonlyMap<RowRequest, Pays> | undefined
}

/**
 * The rows of estimates, each with the rows whose payments it notes. An undefined entry is a limit without a
 * row.
 */
export type Notes = ReadonlyMap<RowRequest, readonly (RowRequest | undefined)[]>

/** A list and how it is sent. */
export interface List {
  readonly connection: Connection
  /** Sorted in the order in which every list locks. */
  readonly rows: readonly RowRequest[]
  /** The rows that are in none of the groups pay their own rates. */
  readonly groups: readonly Group[]
  readonly notes: Notes
  readonly commit: Commit
  /**
   * Called before each statement and each wait, with: whether it may charge, whether it may wait for a row, and
   * how far the statement has come if other lists share it. An error that this throws ends the list.
   */
  readonly onSend: (mayCharge: boolean, mayWait: boolean, shared?: Sending) => void
  /** Times in the calendar periods to send, where the database has returned one. */
  periodsMs: Map<RowRequest['row'], number> | undefined
  /** Whether missing rows were inserted for the list. */
  hasMade: boolean
  /** The rows that the last statement has not found: others hold them, or they do not exist. */
  held: readonly RowRequest[]
}

/** The answer of a statement. `isDone` says whether it charged the list. */
export interface Found {
  readonly isDone: boolean
  /** The rows as they were before. Rows that are not in here do not exist, or others hold them. */
  readonly looks: ReadonlyMap<RowRequest, Decision>
}

/** Postgres would take too long to plan a statement for more. */
export const MAX_ROWS = 50

/** Whether one statement cannot charge the rows, wherever they are. */
export function mayNeedSeveral(rows: readonly RowRequest[]): boolean {
  return rows.length > MAX_ROWS || !reachesAll(rows)
}

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
