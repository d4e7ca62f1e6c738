import { sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Database } from '../kernel/database/database.ts'
import { execute } from '../kernel/database/run.ts'
import { quotedName } from '../kernel/database/table-name.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { hashText } from './hash.ts'

/** The shards of a table, by the lowest hash of each. */
export class Shards {
  /** Tables with the same group have their shards at the same places. */
  readonly group: string
  readonly #lowest: Int32Array

  constructor(group: string, lowest: readonly number[]) {
    this.group = group
    this.#lowest = Int32Array.from(lowest)
  }

  /** The number of the shard that has the key. The first is 0. */
  of(key: string): number {
    if (this.#lowest.length < 2) return 0
    const hash = hashText(key)
    let [from, to] = [0, this.#lowest.length]
    while (to - from > 1) {
      const middle = (from + to) >> 1
      if ((this.#lowest[middle] as number) <= hash) from = middle
      else to = middle
    }
    return from
  }
}

/**
 * Reads from Citus' catalogs how the table is distributed. Without Citus, or without a distribution, a table is
 * one shard.
 *
 * @throws RatelimitError `MISSING_TABLE` if it is distributed by another column.
 */
export async function readShards(db: Database, table: RateLimitTable): Promise<Shards> {
  const [citus] = await execute(
    db,
    sql`select pg_catalog.to_regclass('pg_catalog.pg_dist_shard') is not null as there`,
  )
  const name = quotedName(table)
  if (citus?.['there'] !== true) return new Shards(name, [])
  const rows = await execute(
    db,
    sql`select partition.colocationid as group, shard.shardminvalue as lowest,
        column_to_column_name(partition.logicalrelid, partition.partkey) as column
      from pg_dist_partition partition join pg_dist_shard shard using (logicalrelid)
      where partition.logicalrelid::oid = pg_catalog.to_regclass(${name})::oid order by shard.shardminvalue::int`,
  )
  const [first] = rows
  if (!first) return new Shards(name, [])
  const { column } = first
  if (column !== null && column !== table.key.name) {
    throw new RatelimitError(
      'MISSING_TABLE',
      'citus() needs tables that Citus has distributed by key, and a table is distributed by another ' +
        `column. Run alter_distributed_table(..., distribution_column := '${table.key.name}').`,
    )
  }
  const lowest = column === null ? [] : rows.map((row) => Number(row['lowest']))
  return new Shards(`colocated ${first['group']}`, lowest)
}
