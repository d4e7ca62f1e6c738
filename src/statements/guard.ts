import { type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import { sizeParameter } from '../database/run.ts'
import { literal, quotedName } from '../tables/table-name.ts'
import { name, type Parameters } from './builder.ts'
import { type Link, link } from './link.ts'

/**
 * Sizes in bytes at which plans are made anew: 2, 4, 8, 16, 64 and 256 pages.
 *
 * A table of a few pages is read whole, which is cheaper there than the index. A larger one is read by the
 * primary key, but not always. The planner takes each prefix for one of 200. If it expects fewer than 300 rows
 * in the table, it expects one of each prefix, and the index that cleanup uses looks as good. It expects as
 * many rows on a page as there were when the table was analyzed. On 256 pages, two rows each are enough.
 * https://www.postgresql.org/docs/current/runtime-config-query.html
 */
const SIZES = 'array[16384, 32768, 65536, 131072, 524288, 2097152]'

/** Keeps a statement from using a plan that was made for tables of other sizes. */
export interface Guard {
  readonly links: readonly Link[]
  /** Whether the table has the size that the plan is for. Postgres asks once, before it reads a row. */
  fits(table: RateLimitTable): SQL | undefined
}

const SIZE = 'ratelimit_size'

/**
 * Asks how large the tables are; `size` in the answer says so. If the caller believes other sizes, nothing is
 * read.
 *
 * The planner goes by the size that a table has when the plan is made. Afterwards a prepared plan stays until
 * something invalidates it, such as autovacuum's analyze within a minute.
 */
export function guard(tables: readonly RateLimitTable[], guarded: boolean, parameters: Parameters): Guard {
  if (!guarded) return { links: [], fits: () => undefined }
  const links = tables.map((table, place) => {
    const quoted = sql.raw(literal(quotedName(table)))
    const size = sql`select pg_catalog.width_bucket(pg_relation_size(${quoted}::regclass), ${sql.raw(SIZES)}) as size`
    return link(place === 0 ? SIZE : `${SIZE}_${place}`, size)
  })
  return {
    links,
    fits: (table) => {
      const place = tables.indexOf(table)
      const { alias } = links[place] as Link
      return sql`(select size from ${name(alias)}) = ${parameters.integer(sizeParameter(place))}`
    },
  }
}

/**
 * Selects the rows of `from`, with the sizes if the statement is guarded. If `from` has no rows, the answer is
 * one row that has the sizes only.
 */
export function guardedSelect({ links }: Guard, columns: readonly SQL[], from: SQL, join: SQL): SQL {
  const sizes = links.map(({ alias }, place) => sql`${name('size', alias)} as ${name(sizeParameter(place))}`)
  const tables = links.map(({ alias }) => name(alias))
  const source =
    links.length > 0 ? sql`${sql.join(tables, sql` cross join `)} left join ${from} on true` : from
  return sql`select ${sql.join([...sizes, ...columns], sql`, `)} from ${source}${join}`
}
