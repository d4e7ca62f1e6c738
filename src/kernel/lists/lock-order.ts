import { sorted } from '../base/arrays.ts'
import { compareText } from '../sql/calls.ts'
import { tableNameOf } from '../store/empty-rows.ts'
import type { RowRequest } from './sending.ts'

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
