import type { SQL } from 'drizzle-orm'

/**
 * What the limiter needs of Drizzle: any Postgres database or transaction of any driver, with or without a
 * schema.
 *
 * It is described by its members instead of by Drizzle's classes, whose names and type parameters differ
 * between 0.45 and 1.0. MySQL and SQLite have no materialized views in Drizzle, and so are refused.
 */
export interface Database {
  /** Runs one statement. */
  execute(query: SQL): PromiseLike<unknown>
  /** Runs work in a transaction of its own. */
  transaction<T>(
    work: (tx: Database) => Promise<T>,
    config?: { readonly isolationLevel: 'read committed' },
  ): Promise<T>
  /** Only Postgres has it. */
  refreshMaterializedView: unknown
  /** Where Drizzle keeps what is behind the database. */
  readonly _?: { readonly session?: object }
  /** Transactions have it. */
  rollback?: unknown
}

/** Whether this is a transaction: only those can be rolled back. */
export function isTransaction(db: Database): boolean {
  return typeof db === 'object' && db !== null && 'rollback' in db
}
