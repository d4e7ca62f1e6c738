import { and, isNotNull, or, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import { oidOf } from '../database/table-name.ts'
import type { RowKind } from '../limits/algorithm.ts'
import { ROWS } from '../limits/rows.ts'
import { name } from './builder.ts'
import { isOfKind, type RowColumns, STATE_COLUMNS } from './columns.ts'

// For statements that go through the rows of a prefix: where a row is, and rows with periods.

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

const PERIOD_ROWS = Object.values<RowKind>(ROWS).filter(({ hasPeriods }) => hasPeriods)

export function isOfPeriods(row: RowColumns): SQL {
  return sql`${or(...PERIOD_ROWS.map((kind) => isOfKind(kind, row)))}`
}

/**
 * Whether the row fills the columns that all algorithms with periods fill. Without statistics the planner takes
 * {@link isOfPeriods} for rare, and would read all rows of a prefix for each page of them. It takes this for
 * likely, and reads a page in the order of the keys.
 */
export function mayHavePeriod(row: RowColumns): SQL {
  const common = STATE_COLUMNS.filter((each) => PERIOD_ROWS.every(({ columns }) => columns.includes(each)))
  return sql`${and(...common.map((column) => isNotNull(row[column])))}`
}
