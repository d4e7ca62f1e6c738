import { type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import { oidOf } from '../tables/table-name.ts'
import { name } from './builder.ts'

/** Where a row is. `ctid` alone is unique in one partition only. */
export function placeOf(table: RateLimitTable): { home: SQL.Aliased; found: SQL.Aliased } {
  return { home: sql`${table}.tableoid`.as('home'), found: sql`${table}.ctid`.as('found') }
}

/** The columns of `placeOf`, in the query of a link. */
export const PLACE: SQL = sql`home, found`

/**
 * Whether a row is at one of the places that a link has locked. The list of places lets Postgres go to them
 * directly. Without it, Postgres might read all partitions to join them. In a table without partitions the list
 * is enough, because `isOwn` has locked no other rows, and Postgres never looks at the rest.
 */
export function isLocked(table: RateLimitTable, alias: string): SQL {
  const places = sql`${table}.ctid = any(array(select found from ${name(alias)}))`
  return sql`${places} and (${table}.tableoid = ${oidOf(table)}::oid
    or (${table}.tableoid, ${table}.ctid) in (select ${PLACE} from ${name(alias)}))`
}

/**
 * Whether a row is in the table or in one of its partitions, and not in a table that inherits from it, such as
 * an archive. On a server with Citus every row is: it names the table, but reads its shards.
 */
export function isOwn(table: RateLimitTable): SQL {
  const self = oidOf(table)
  // Two types that are one: Postgres then compares them by its own operator, whatever the search_path has.
  return sql`(${table}.tableoid = ${self}::oid or pg_catalog.pg_partition_root(${self}) is not null
    or pg_catalog.current_setting('citus.shard_count', true) is not null)`
}
