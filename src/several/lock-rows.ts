import type { Connection } from '../database/connection.ts'
import { atMost } from '../database/rows.ts'
import { runKept, runOnce } from '../database/run.ts'
import type { Values } from '../database/statement.ts'
import { timed } from '../diagnostics.ts'
import { groupBy } from '../group-by.ts'
import type { Table } from '../runtime/call.ts'
import { compareText, textArray } from '../statements/calls.ts'
import { lockStatement, removeEmptyStatement } from '../statements/lock.ts'
import type { Commit } from '../statements/setting.ts'
import { kept } from '../statements/statements.ts'
import { type RowRequest, tableNameOf } from './add-up.ts'

/** Rows of a table, of which some were inserted. */
export interface Inserted {
  readonly table: Table
  readonly names: Values
}

/**
 * Inserts the rows that are missing and locks all, in the order of table, prefix and key. Returns the rows of
 * the tables in which it inserted some.
 */
export async function lockRows(
  tx: Connection,
  rows: readonly RowRequest[],
  commit: Commit,
): Promise<readonly Inserted[]> {
  const inserted: Inserted[] = []
  const tables = groupBy(rows, tableNameOf)
  for (const ofTable of tables.toSorted(([one], [other]) => compareText(nameOf(one), nameOf(other)))) {
    const { table } = ofTable[0] as RowRequest
    const names = namesOf(ofTable)
    const statement = kept(table.statements, `lock ${commit}`, () => lockStatement(table.table, commit))
    const about = { prefix: undefined, statement: 'lock', keys: ofTable.length } as const
    const made = await timed(about, () => runKept(tx, statement, ANY_SIZE, names))
    if (atMost(made, ofTable.length).length > 0) inserted.push({ table, names })
  }
  return inserted
}

/** An insert finds its conflict by the primary key, however large the table is. */
const ANY_SIZE = 'any size'

function nameOf(row: RowRequest | undefined): string {
  return row ? tableNameOf(row) : ''
}

function namesOf(rows: readonly RowRequest[]): Values {
  const sorted = rows.toSorted(
    (one, other) =>
      compareText(one.namespace.prefix, other.namespace.prefix) || compareText(one.key, other.key),
  )
  return {
    prefix: textArray(sorted.map(({ namespace }) => namespace.prefix)),
    key: textArray(sorted.map(({ key }) => key)),
  }
}

/** Removes the rows that were inserted and have no state: nothing was taken from them. */
export async function removeEmpty(tx: Connection, inserted: readonly Inserted[]): Promise<void> {
  for (const { table, names } of inserted) {
    const statement = kept(table.statements, 'remove empty', () => removeEmptyStatement(table.table))
    await runOnce(tx.db, statement, names)
  }
}
