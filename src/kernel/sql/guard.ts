import { type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import { sizeParameter } from '../database/run.ts'
import type { Statement } from '../database/statement.ts'
import { oidOf } from '../database/table-name.ts'
import { chain, type Link, link, name, type Parameters } from './builder.ts'

/**
 * The sizes in bytes at which statements get a new plan: 2, 4, 8, 16, 64 and 256 pages.
 *
 * The planner reads a table of a few pages whole, because that is cheaper than the index. It reads a larger one
 * by the primary key, but not always. It assumes 200 prefixes. If it expects fewer than 300 rows in the table,
 * it expects one row in each prefix, and the index for cleanup looks as good. For a page, it expects as many
 * rows as there were when the table was analyzed. With 256 pages, two rows on each are enough.
 * https://www.postgresql.org/docs/current/runtime-config-query.html
 */
const SIZES = 'array[16384, 32768, 65536, 131072, 524288, 2097152]'

/** Prevents a statement from using a plan that was made for tables of other sizes. */
export interface PlanGuard {
  readonly links: readonly Link[]
  /** Whether the table has the size that the plan is for. Postgres checks it once, before it reads a row. */
  fits(table: RateLimitTable): SQL | undefined
}

const SIZE = 'ratelimit_size'

/**
 * Compares the sizes of the tables with the expected ones. If they differ, the statement reads nothing and
 * returns the sizes.
 *
 * The planner uses the size that a table has when the plan is made. Afterwards a prepared plan stays until
 * something invalidates it, such as an analyze by autovacuum, which comes within a minute.
 */
export function guard(
  tables: readonly RateLimitTable[],
  guarded: boolean,
  parameters: Parameters,
): PlanGuard {
  if (!guarded) return { links: [], fits: () => undefined }
  const links = tables.map((table, place) => {
    return link(place === 0 ? SIZE : `${SIZE}_${place}`, sql`select ${sizeOf(table)} as size`)
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
 * The size class of a table. A partitioned table is empty itself, and each partition is read in its own way, so
 * its class is the sum of theirs. The planner already knows whether it is partitioned, and leaves the rest out.
 */
function sizeOf(table: RateLimitTable): SQL {
  const whole = oidOf(table)
  const classOf = (part: SQL) => sql`pg_catalog.width_bucket(pg_relation_size(${part}), ${sql.raw(SIZES)})`
  const parts = sql`select sum(${classOf(sql`relid`)})::integer from pg_catalog.pg_partition_tree(${whole})`
  return sql`case when pg_catalog.pg_partition_root(${whole}) is null then ${classOf(whole)} else (${parts}) end`
}

/** What a statement does after its settings and its guard. */
export interface Body {
  readonly links: readonly Link[]
  readonly columns: readonly SQL[]
  readonly from: SQL
}

/**
 * The finished statement. If it is guarded, its answer has the sizes too. If `from` has no rows, the answer is
 * one row with nothing but the sizes.
 */
export function guardedStatement(
  parameters: Parameters,
  guarding: PlanGuard,
  settings: TransactionSettings,
  { links, columns, from }: Body,
): Statement {
  const guards = guarding.links
  const sizes = guards.map(({ alias }, place) => sql`${name('size', alias)} as ${name(sizeParameter(place))}`)
  const tables = guards.map(({ alias }) => name(alias))
  const source =
    guards.length > 0 ? sql`${sql.join(tables, sql` cross join `)} left join ${from} on true` : from
  const answer = sql`select ${sql.join([...sizes, ...columns], sql`, `)} from ${source}${settings.join}`
  return parameters.render(chain([...settings.links, ...guards, ...links], answer))
}

/**
 * How the statement's own transaction commits: as the session does, without waiting for the WAL flush, or with
 * waiting for it. In a caller's transaction the setting would also apply to the caller's data. So it is always
 * `'as the session'` there.
 */
export type Commit = 'as the session' | 'async' | 'flushed'

const SETTING = 'ratelimit_setting'

export interface TransactionSettings {
  readonly links: readonly Link[]
  /** Joined to a query: Postgres never runs a `select` that nothing refers to. */
  readonly join: SQL
}

const COMMITS = {
  async: sql`set_config('synchronous_commit', 'off', true)`,
  flushed: sql`set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on'
    else current_setting('synchronous_commit') end, true)`,
}

/** How long a statement for many new keys waits for a row that another transaction is inserting. */
const LOCK_TIMEOUT = sql`set_config('lock_timeout', '3ms', true)`

export function transactionSettings(commit: Commit, lockTimeout = false): TransactionSettings {
  const settings = [
    ...(commit === 'as the session' ? [] : [COMMITS[commit]]),
    ...(lockTimeout ? [LOCK_TIMEOUT] : []),
  ]
  if (settings.length === 0) return { links: [], join: sql`` }
  const columns = settings.map((setting, i) => sql`${setting} as ${name(`setting_${i}`)}`)
  return {
    links: [link(SETTING, sql`select ${sql.join(columns, sql`, `)}`)],
    join: sql` cross join ${name(SETTING)}`,
  }
}
