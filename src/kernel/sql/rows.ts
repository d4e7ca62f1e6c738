import { and, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { StateColumn } from '../limits/algorithm.ts'
import { builder } from './builder.ts'
import { forEach, STATE_COLUMNS, toColumn } from './columns.ts'

type Read = Readonly<Record<string, SQL.Aliased | RateLimitTable['key' | StateColumn]>>

/** Locks the rows that meet the conditions. Unless the query `waits`, it skips those that others hold. */
export function lockedRow(
  table: RateLimitTable,
  columns: Read,
  conditions: readonly (SQL | undefined)[],
  waits = false,
): SQL {
  return builder
    .select(columns)
    .from(table)
    .where(and(...conditions))
    .for('update', waits ? {} : { skipLocked: true })
    .getSQL()
}

/** The state of a row that counts as no row. */
export const NO_STATE: Record<StateColumn, SQL> = /* @__PURE__ */ forEach(STATE_COLUMNS, (column) =>
  toColumn(column, undefined),
)

export type NextRow = Readonly<Record<StateColumn | 'expiresAt', SQL>>

export function newRows(prefix: SQL, key: SQL, next: NextRow, from: SQL): SQL {
  const values = [prefix, key, ...STATE_COLUMNS.map((column) => next[column]), next.expiresAt]
  return sql`select ${sql.join(values, sql`, `)} from ${from}`
}

/**
 * The query that inserts new rows, and returns their keys. It skips rows that exist, or locks them, or fails.
 * To lock a row is an update that never happens: Postgres locks the row before it evaluates the condition.
 */
export function insertRow(
  table: RateLimitTable,
  rows: SQL,
  existing: 'skip' | 'lock' | 'fail' = 'skip',
): SQL {
  const [target, key] = [[table.prefix, table.key], { key: table.key }]
  const inserted = builder.insert(table).select(rows)
  if (existing === 'fail') return inserted.returning(key).getSQL()
  if (existing === 'skip') return inserted.onConflictDoNothing({ target }).returning(key).getSQL()
  const set = { prefix: sql`excluded.prefix` }
  return inserted.onConflictDoUpdate({ target, set, setWhere: sql`false` }).returning(key).getSQL()
}
