import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { mustHave } from '../database/rows.ts'
import { runKept, runOnce } from '../database/run.ts'
import { kept, type Value } from '../database/statement.ts'
import { quotedName } from '../database/table-name.ts'
import { timed } from '../diagnostics.ts'
import { textArray } from '../sql/calls.ts'
import type { Commit } from '../sql/guard.ts'
import { lockStatement, removeEmptyStatement } from '../sql/lock.ts'
import type { Namespace } from './call.ts'
import type { Table } from './store.ts'

// A list inserts its missing rows without a state before it is charged. Such a row counts as no row.

interface ListedRow {
  readonly table: Table
  readonly namespace: Pick<Namespace, 'prefix'>
  readonly key: string
}

/** The plan fits tables of any size, because an insert finds its conflict by the primary key. */
const ANY_SIZE = 'any size'

/** The name of a table in SQL. Two declarations of one table have the same. */
export function tableNameOf({ table }: Pick<ListedRow, 'table'>): string {
  return quotedName(table.table)
}

/** The tables of the rows by name, in the order of the rows. Two declarations of one table count as one. */
export function tablesOf(rows: readonly Pick<ListedRow, 'table'>[]): ReadonlyMap<string, Table> {
  return new Map(rows.map((row) => [tableNameOf(row), row.table]))
}

/** Whether one statement can charge the rows, wherever they are. */
export function reachesAll(rows: readonly Pick<ListedRow, 'table'>[]): boolean {
  return rows.every(({ table }) => !table.store.steps)
}

/** Whether one statement can charge the rows where they are. */
export async function areInOnePlace(rows: readonly ListedRow[], db: Database): Promise<boolean> {
  const places = new Set<string | undefined>()
  for (const { table, key } of rows) places.add(await table.store.steps?.placeOf(db, key))
  return places.size === 1
}

/**
 * Inserts the missing rows, and returns how many there were. If it `waits`, it also locks all rows, in their
 * order.
 *
 * @param onSend Called before each statement.
 */
export async function insertEmpty(
  rows: readonly ListedRow[],
  connection: Connection,
  commit: Commit,
  waits: boolean,
  onSend?: () => void,
): Promise<number> {
  let made = 0
  for (const own of reachesAll(rows) ? [rows] : rows.map((row) => [row])) {
    const [first] = own
    if (!first) continue
    const { steps } = first.table.store
    onSend?.()
    made += await (steps
      ? steps.insertForList(connection, first.namespace.prefix, first.key, waits)
      : insertInTables(own, connection, commit, waits))
  }
  return made
}

async function insertInTables(
  rows: readonly ListedRow[],
  connection: Connection,
  commit: Commit,
  waits: boolean,
): Promise<number> {
  const tables = tablesOf(rows)
  const values: Record<string, Value> = {}
  for (const [place, name] of [...tables.keys()].entries()) {
    const { prefix, key } = namesIn(name, rows)
    values[`${place}.prefix`] = prefix
    values[`${place}.key`] = key
  }
  const all = [...tables.values()].map(({ table }) => table)
  const [{ statements }] = [...tables.values()] as [Table]
  const statement = kept(statements, `lock ${commit} ${waits} ${[...tables.keys()].join()}`, () =>
    lockStatement(all, commit, waits),
  )
  const about = { prefix: undefined, statement: 'make', keys: rows.length } as const
  const [answer] = await timed(about, () => runKept(connection, statement, ANY_SIZE, values))
  return Number(mustHave(answer?.['made']))
}

/**
 * Removes the rows that were inserted and have no state, because nothing was taken from them. These statements
 * charge nothing, so they tell nothing of how far the call has come: it may have charged other rows before.
 */
export async function removeEmpty(
  rows: readonly ListedRow[],
  { sending: _, ...connection }: Connection,
): Promise<void> {
  for (const [name, { table, statements, store }] of tablesOf(rows)) {
    const { steps } = store
    if (steps) {
      for (const { namespace, key } of rows.filter((row) => tableNameOf(row) === name))
        await steps.removeEmpty(connection, namespace.prefix, [key])
    } else {
      const statement = kept(statements, 'remove empty', () => removeEmptyStatement(table))
      await runOnce(connection, statement, namesIn(name, rows))
    }
  }
}

function namesIn(
  table: string,
  rows: readonly ListedRow[],
): { readonly prefix: string; readonly key: string } {
  const own = rows.filter((row) => tableNameOf(row) === table)
  return {
    prefix: textArray(own.map(({ namespace }) => namespace.prefix)),
    key: textArray(own.map(({ key }) => key)),
  }
}
