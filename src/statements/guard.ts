import { type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import { sizeParameter } from '../database/run.ts'
import { literal, quotedName } from '../database/table-name.ts'
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

/** Keeps a statement from using a plan that was made for a table of another size. */
export interface Guard {
  readonly links: readonly Link[]
  /** Whether the table has the size that the plan is for. Postgres asks once, before it reads a row. */
  readonly fits: SQL | undefined
  /** The size that the table has. */
  readonly size: SQL | undefined
}

const SIZE = 'ratelimit_size'

/**
 * Asks how large the table is; `size` in the answer says so. If the caller believes another size, nothing is
 * read.
 *
 * The planner goes by the size that a table has when the plan is made. Afterwards a prepared plan stays until
 * something invalidates it, such as autovacuum's analyze within a minute.
 */
export function guard(
  { table, guarded }: { readonly table: RateLimitTable; readonly guarded: boolean },
  parameters: Parameters,
  place = 0,
): Guard {
  if (!guarded) return { links: [], fits: undefined, size: undefined }
  const alias = place === 0 ? SIZE : `${SIZE}_${place}`
  const quoted = sql.raw(literal(quotedName(table)))
  const size = sql`select pg_catalog.width_bucket(pg_relation_size(${quoted}::regclass), ${sql.raw(SIZES)}) as size`
  const found = sql`(select size from ${name(alias)})`
  return {
    links: [link(alias, size)],
    fits: sql`${found} = ${parameters.integer(sizeParameter(place))}`,
    size: found,
  }
}

/**
 * Selects the rows of `from`, with `size` if the statement is guarded. If `from` has no rows, the answer is one
 * row that has `size` only.
 */
export function guardedSelect({ links }: Guard, columns: readonly SQL[], from: SQL, join: SQL): SQL {
  const list = links.length > 0 ? [name('size', SIZE), ...columns] : columns
  const source = links.length > 0 ? sql`${name(SIZE)} left join ${from} on true` : from
  return sql`select ${sql.join([...list], sql`, `)} from ${source}${join}`
}
