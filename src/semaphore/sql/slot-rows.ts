import { type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import { ROWS } from '../../kernel/limits/rows.ts'
import { fromColumn, isOfKind } from '../../kernel/sql/columns.ts'
import { BY_ITSELF } from '../../kernel/sql/levels.ts'

// A slot is a row. Its key is the limited key and the slot's number, `last_refill` is the end of its lease, and
// `count` is the fence of its last lease.

/** No lease has ended before. */
const LONG_AGO = sql.raw('0::float8')

/** When the lease of a slot ends. */
export function leaseEnd(table: RateLimitTable): SQL {
  return sql`case when ${isOfKind(ROWS.slot, table)} then ${fromColumn('lastRefill', table.lastRefill)} else ${LONG_AGO} end`
}

/** The slots of the key `call.key`. The range is for the index. In some collations it has other keys too. */
export function slotsOfKey(table: RateLimitTable, prefix: SQL): SQL {
  return sql`select case when right(${table.key}, 4) ~ '^[0-9]+$' then right(${table.key}, 4)::integer end as number, ${leaseEnd(table)} as ends,
      ${fromColumn('count', table.count)} as count
    from ${table}
    where ${table.prefix} = ${prefix} and ${table.key} between call.key || '#0000' and call.key || '#9999'
      and starts_with(${table.key}, call.key || '#') and length(${table.key}) = length(call.key) + 5 ${BY_ITSELF}`
}
