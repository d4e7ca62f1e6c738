import { type SQL, type SQLWrapper, sql } from 'drizzle-orm'

/** How many rows are read at once. */
export const MAX_PAGE = 1_000

/**
 * The first rows of a query that is ordered by the primary key.
 *
 * The `select` hides the number from the planner. A planner without statistics expects few rows of a prefix. If
 * it saw that all of them fit on the page, it would read and sort the whole rest of the prefix for each page.
 * https://www.postgresql.org/docs/current/row-estimation-examples.html
 */
export function page(rows: SQLWrapper): SQL {
  return sql`${rows.getSQL()} limit (select ${sql.raw(String(MAX_PAGE))}::bigint)`
}
