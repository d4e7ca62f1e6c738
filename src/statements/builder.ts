import { drizzle } from 'drizzle-orm/pg-proxy'
import { type Rendered, render } from '../database/rendered.ts'

/**
 * Drizzle's query builder without a database: statements are written and rendered here, and run elsewhere.
 *
 * The names of their CTEs begin with `ratelimit_`: one that is a table's name would hide the table.
 */
export const builder: ReturnType<typeof drizzle> = drizzle(() =>
  Promise.reject(new Error('The statement builder has no database.')),
)

/**
 * Renders a chain of CTEs so that each link is worked out once.
 *
 * Postgres puts a CTE that is used once into its user, and so an expression at the chain's beginning would be written out again for
 * every use of it further on; planning all that takes longer than running it. Drizzle has no word for MATERIALIZED.
 * https://www.postgresql.org/docs/current/queries-with.html#QUERIES-WITH-CTE-MATERIALIZATION
 */
export function renderChain(query: Parameters<typeof render>[0]): Rendered {
  const { sql, params } = query.toSQL()
  return render({
    toSQL: () => ({ sql: sql.replaceAll(/("ratelimit_\w+") as \(/g, '$1 as materialized ('), params }),
  })
}
