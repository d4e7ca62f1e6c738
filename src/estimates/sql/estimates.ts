import { and, asc, eq, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import { ROWS } from '../../kernel/limits/rows.ts'
import { builder, Parameters } from '../../kernel/sql/builder.ts'
import { exact, forEach, fromColumn, isOfKind, SQL_NAMES, STATE_COLUMNS } from '../../kernel/sql/columns.ts'
import { GRID_MS, OPEN_MS } from '../estimate-row.ts'

// Statements for the rows of open estimates. These expire in a far future, in the order of their ends.

const OPEN = sql.raw(`${OPEN_MS}::float8`)

/** The query for open estimates of a prefix, those that end first before the others. */
function openRows(table: RateLimitTable, parameters: Parameters, ...conditions: readonly SQL[]) {
  return builder
    .select({
      key: sql`${table.key}`.as('key'),
      ...forEach(STATE_COLUMNS, (column) => exact(fromColumn(column, table[column])).as(SQL_NAMES[column])),
    })
    .from(table)
    .where(
      and(
        eq(table.prefix, parameters.text('prefix')),
        isOfKind(ROWS.estimate, table),
        sql`${table.tokens} >= 0::float8`,
        ...conditions,
      ),
    )
    .orderBy(asc(table.expiresAt), asc(table.key))
}

/** The statement that finds open estimates, of one key or of all keys. */
export function openStatement(table: RateLimitTable, isOfKey: boolean): Statement {
  const parameters = new Parameters()
  const which = isOfKey
    ? isNamedOf(table, parameters.text('from'), parameters.text('to'))
    : sql`${table.expiresAt} >= to_timestamp(${OPEN} / 1000::float8)`
  const rows = openRows(table, parameters, which)
  return parameters.render(sql`${rows.getSQL()} limit ${parameters.number('size')}::bigint`)
}

/**
 * Whether the key is the limited key, a slash and an id. The range is for the index. In some collations it has
 * other keys too, and another limited key may begin like this one, with a slash after it.
 */
function isNamedOf({ key }: RateLimitTable, from: SQL, to: SQL): SQL {
  const id = sql`substr(${key}, char_length(${from}) + 1)`
  return sql`${key} between ${from} and ${to} and starts_with(${key}, ${from}) and strpos(${id}, '/') = 0`
}

/**
 * The statement that finds open estimates whose end has come. If it `locks`, it skips those that others have
 * locked. It uses `now()` instead of the clock, because Postgres cannot search an index by a volatile function.
 */
export function expiredEstimatesStatement(table: RateLimitTable, locks: boolean): Statement {
  const parameters = new Parameters()
  const now = sql`coalesce(${parameters.number('clock')}, floor(date_part('epoch', now()) * 1000::float8))`
  const rows = openRows(
    table,
    parameters,
    sql`${table.expiresAt} between to_timestamp(${OPEN} / 1000::float8)
      and to_timestamp((${OPEN} + ${now} + ${sql.raw(`${GRID_MS}::float8`)}) / 1000::float8)`,
    sql`${fromColumn('lastRefill', table.lastRefill)} <= ${now}`,
  )
  const query = sql`${rows.getSQL()} limit ${parameters.number('size')}::bigint`
  return parameters.render(locks ? sql`${query} for update skip locked` : query)
}
