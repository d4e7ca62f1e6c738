import { type SQL, type SQLWrapper, sql } from 'drizzle-orm'
import { name } from './builder.ts'

/** A query of a statement's `with` clause. */
export interface Link {
  readonly alias: string
  readonly query: SQL
}

/**
 * A link. Its name begins with `ratelimit_`: a link with a table's name would hide the table.
 *
 * Postgres works each link out once, because it locks, writes, is used twice or reads the clock.
 * https://www.postgresql.org/docs/current/queries-with.html#QUERIES-WITH-CTE-MATERIALIZATION
 */
export function link(alias: string, query: SQLWrapper): Link {
  return { alias, query: query.getSQL() }
}

/** A statement of links, each of which may use those before it. */
export function chain(links: readonly Link[], last: SQL): SQL {
  const queries = links.map(({ alias, query }) => sql`${name(alias)} as (${query})`)
  return sql`with ${sql.join(queries, sql`, `)} ${last}`
}
