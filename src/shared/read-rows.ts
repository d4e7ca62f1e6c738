import type { RateLimitTable } from '../../schema/index.ts'
import type { Database } from '../kernel/database/database.ts'
import { uncharged } from '../kernel/database/database-error.ts'
import { type Row, runOnce } from '../kernel/database/run.ts'
import { kept, type Statement, type Values } from '../kernel/database/statement.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import type { Table } from '../kernel/store/store.ts'

/** The rows that a report reads, and the clock. */
export interface Reading {
  readonly db: Database
  readonly table: Table
  readonly prefix: string
  /** In Unix milliseconds. Undefined for the database's clock. */
  readonly clock: (() => number) | undefined
}

/** The rows of a limiter. */
export function readingIn({ rows: { connection, table, namespace } }: Checker, tx?: Database): Reading {
  return { db: tx ?? connection.db, table, prefix: namespace.prefix, clock: namespace.clock }
}

/**
 * The answer of a statement that only reads, by default the rows of the prefix.
 *
 * @param name What distinguishes the statement from the others of the table.
 */
export function readRows(
  { db, table, prefix }: Omit<Reading, 'clock'>,
  name: string,
  build: (table: RateLimitTable) => Statement,
  values: Values,
  params?: Values,
): Promise<readonly Row[]> {
  const statement = kept(table.statements, name, () => build(table.table))
  return uncharged(runOnce({ db }, statement, { prefix, ...values }, params))
}
