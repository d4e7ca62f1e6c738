import { and, eq, gt, lt, or, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import { ROWS } from '../../kernel/limits/rows.ts'
import { builder, Parameters } from '../../kernel/sql/builder.ts'
import { exact, fromColumn, isOfKind } from '../../kernel/sql/columns.ts'

// What reports and operators see of the dated credits of all keys.

/** The most rows of grants that are read to find the keys with least left: those that expire last. */
export const MAX_READ = 20_000

/** The limited key in the key of a grant's row. An id has no slash, so the last part is the id. */
const ofGrant = (key: RateLimitTable['key']) => sql`substring(${key} from '^(.*)/grant/[0-9a-f]+$')`
const ofDebt = (key: RateLimitTable['key']) => sql`substring(${key} from '^(.*)/debt$')`

/** Since `expires_at` is later than the end, the index finds the rows that are live. */
function isLive(table: RateLimitTable, parameters: Parameters): SQL {
  const now = sql`to_timestamp(${parameters.number('clock')} / 1000::float8)`
  const isGrant = and(isOfKind(ROWS.credits, table), gt(table.windowStart, now))
  const isOfPrefix = and(eq(table.prefix, parameters.text('prefix')), gt(table.expiresAt, now))
  return sql`${and(isOfPrefix, or(isGrant, isOfKind(ROWS.balance, table)))}`
}

/** The live rows of keys that have a part: of each what was granted, and what was used or is owed. */
function liveRows(table: RateLimitTable, parameters: Parameters): SQL {
  const key = sql`coalesce(${ofGrant(table.key)}, ${ofDebt(table.key)})`
  const granted = sql`case when ${isOfKind(ROWS.credits, table)} then ${fromColumn('prevCount', table.prevCount)} else 0::float8 end`
  const rows = builder
    .select({
      key: key.as('key'),
      granted: granted.as('granted'),
      used: fromColumn('count', table.count).as('used'),
    })
    .from(table)
    // A row of another program has no such key, which is in no part.
    .where(sql`${isLive(table, parameters)} and strpos(${key}, ${parameters.text('part')}) > 0`)
  return rows.getSQL()
}

/** The statement that finds the keys that have used most. */
export function mostUsedStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  return parameters.render(
    sql`select key, ${exact(sql`granted`)} as granted, ${exact(sql`used`)} as used from (
        select key, sum(granted) as granted, sum(used) as used
        from (${liveRows(table, parameters)}) as live
        group by key
      ) as summed
      where used > 0::float8
      order by used desc, key
      limit ${parameters.number('size')}::bigint`,
  )
}

/** The statement that finds the keys that have least left of what was granted, and how many there are. */
export function leastLeftStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  return parameters.render(
    sql`select key, ${exact(sql`granted`)} as granted, ${exact(sql`used`)} as used, total, nothing, seen from (
        select *, count(*) over () as total, count(*) filter (where used >= granted) over () as nothing
        from (
          select key, sum(granted) as granted, sum(used) as used, max(rows) as seen
          from (
            select *, count(*) over () as rows
            from (${liveRows(table, parameters)} order by expires_at desc limit ${sql.raw(String(MAX_READ))}) as few
          ) as live
          group by key
        ) as summed
        where used > 0::float8
      ) as counted
      order by used / nullif(granted, 0::float8) desc nulls first, key
      limit ${parameters.number('size')}::bigint offset ${parameters.number('offset')}::bigint`,
  )
}

/** The statement that lists the grants that end, those that end first before the others. */
export function endingStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const rows = builder
    .select({
      row: sql`${table.key}`.as('row'),
      granted: exact(fromColumn('prevCount', table.prevCount)).as('granted'),
      used: exact(fromColumn('count', table.count)).as('used'),
      made: exact(fromColumn('lastRefill', table.lastRefill)).as('made'),
      ends: exact(fromColumn('windowStart', table.windowStart)).as('ends'),
    })
    .from(table)
    .where(
      and(
        isLive(table, parameters),
        isOfKind(ROWS.credits, table),
        // The index does not read those that never end.
        lt(table.expiresAt, sql`to_timestamp(${parameters.number('never')} / 1000::float8)`),
        sql`${ofGrant(table.key)} is not null`,
      ),
    )
    // Rows expire in the order of the ends, on a grid of an hour.
    .orderBy(table.expiresAt, table.windowStart)
  return parameters.render(sql`${rows.getSQL()} limit ${parameters.number('size')}::bigint`)
}
