import { and, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import { ROWS } from '../../kernel/limits/rows.ts'
import type { Parameters } from '../../kernel/sql/builder.ts'
import { fromColumn, isOfKind, MAX_TIME, onGrid, toColumn } from '../../kernel/sql/columns.ts'

// A member is a row. Its key is the limited key, a slash, and the member in hexadecimal. `count` is 1,
// `window_start` the time since which it counts, and `last_refill` the time at which it was added last.
//
// The row without a member is the head of its key. Each call that may add one locks the head first, and writes
// it if the member is new: a transaction that cannot see a member of another one cannot lock the head either.
// So the head stays until no member counts. It expires after two windows, and is written again before a member
// would count for longer.

/** Whether a row is a member's, or the head's. */
export function isMember(table: RateLimitTable): SQL {
  return isOfKind(ROWS.member, table)
}

/** The rows of the key. The range is for the index. In some collations it has other keys too. */
export function rowsOfKey(table: RateLimitTable, parameters: Parameters): SQL {
  const head = parameters.text('head')
  return sql`${and(
    sql`${table.prefix} = ${parameters.text('prefix')} and ${table.key} between ${head} and ${head} || 'z'`,
    sql`starts_with(${table.key}, ${head}) and substr(${table.key}, length(${head}) + 1) ~ '^([0-9a-f][0-9a-f])*$'`,
    isMember(table),
  )}`
}

/** When a member was added last. A time that the clock cannot have shown yet heals to now. */
export function seenIn(table: RateLimitTable, now: SQL, parameters: Parameters): SQL<number> {
  const stored = fromColumn('lastRefill', table.lastRefill)
  return sql`case when ${stored} - ${now} > ${parameters.number('windowMs')} then ${now} else ${stored} end`
}

/** When a member that was added last at that time counts no more. */
export function endOf(seen: SQL<number>, parameters: Parameters): SQL<number> {
  return sql<number>`least(${seen} + ${parameters.number('windowMs')}, ${MAX_TIME})`
}

/** The row of a member that is added now expires then. */
export function expiryOf(now: SQL<number>, parameters: Parameters): SQL<number> {
  return onGrid(endOf(now, parameters), parameters)
}

/** The head that is written now expires then. */
export function headExpiryOf(now: SQL<number>, parameters: Parameters): SQL<number> {
  return onGrid(endOf(endOf(now, parameters), parameters), parameters)
}

/** Whether a head stays as long as a member that is added now. */
export function lasts(expires: SQL, now: SQL<number>, parameters: Parameters): SQL<boolean> {
  return sql`${expires} >= ${toColumn('expiresAt', endOf(now, parameters))}`
}
