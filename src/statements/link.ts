import { type SQL, type SQLWrapper, sql } from 'drizzle-orm'
import { name } from './builder.ts'

/** A query of a statement's `with` clause. */
export interface Link {
  readonly alias: string
  readonly query: SQL
}

/**
 * Makes a link. Its name begins with `ratelimit_`, because a link with a table's name would hide the table.
 *
 * Postgres evaluates each link once, because a link locks, writes, reads the clock or is used twice.
 * https://www.postgresql.org/docs/current/queries-with.html#QUERIES-WITH-CTE-MATERIALIZATION
 */
export function link(alias: string, query: SQLWrapper): Link {
  return { alias, query: query.getSQL() }
}

/** A statement made of links. Each link may use those before it. */
export function chain(links: readonly Link[], last: SQL): SQL {
  const queries = links.map(({ alias, query }) => sql`${name(alias)} as (${query})`)
  return sql`with ${sql.join(queries, sql`, `)} ${last}`
}
