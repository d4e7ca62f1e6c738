import { type SQL, type SQLWrapper, sql } from 'drizzle-orm'

/** How many rows are read at once, at most. */
export const MAX_PAGE = 1_000

/**
 * The first `size` rows of a query that is ordered by the primary key.
 *
 * The `select` hides the number from the planner. A planner without statistics expects few rows of a prefix. If
 * it saw that all of them fit on the page, it would read and sort the whole rest of the prefix for each page.
 * https://www.postgresql.org/docs/current/row-estimation-examples.html
 */
export function page(rows: SQLWrapper, size: SQL): SQL {
  return sql`${rows.getSQL()} limit (select ${size}::bigint)`
}
