import { type SQL, type SQLWrapper, sql } from 'drizzle-orm'

// Statements that go through many rows by their keys, page after page.

export const MAX_PAGE = 1_000

/**
 * The first `size` rows of a query that is ordered by the primary key.
 *
 * The `select` hides the number from the planner. Without statistics, the planner expects few rows in a prefix.
 * If it saw that all of them fit on the page, it would read and sort the whole rest of the prefix for each
 * page.
 * https://www.postgresql.org/docs/current/row-estimation-examples.html
 *
 * Citus plans for each server by itself, and only if it sees the number.
 */
export function page(rows: SQLWrapper, size: SQL, isShown: boolean): SQL {
  return isShown
    ? sql`${rows.getSQL()} limit ${size}::bigint`
    : sql`${rows.getSQL()} limit (select ${size}::bigint)`
}
