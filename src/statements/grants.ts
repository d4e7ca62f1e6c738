import { and, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import { ROWS } from '../algorithms/rows.ts'
import type { Statement } from '../database/statement.ts'
import { answered } from './answered.ts'
import { builder, listOf, name, Parameters } from './builder.ts'
import { fromColumn, isOfKind, SQL_NAMES, STATE_COLUMNS } from './columns.ts'
import { guard, guardedStatement } from './guard.ts'
import { BY_ITSELF, CLOCK_MS } from './levels.ts'
import { settingsOf } from './setting.ts'

// The rows of a key's credits. The key of each is the limited key and one of these, so that they are next to
// each other in the primary key, and no two keys have a row in common.

/** The end of the key of the row with the debt. */
export const DEBT = '/debt'

/** What the key of a grant's row has before the grant's id, in hexadecimal. */
export const GRANT = '/grant/'

/** The column with what the key of a row has after the limited key. */
const REST = 'rest'

export interface GrantsSource {
  readonly table: RateLimitTable
  readonly injectedClock: boolean
  readonly guarded: boolean
}

/**
 * The statement that reads the rows of a key's credits. It takes no lock. Its answer has at least one row, with
 * the time. `rest` is what the key of a row has after the limited key. Without `ended` it leaves out grants
 * that are over.
 */
export function grantsStatement(source: GrantsSource): Statement {
  const { table } = source
  const parameters = new Parameters()
  const state = Object.fromEntries(
    STATE_COLUMNS.map((column) => [
      SQL_NAMES[column],
      fromColumn(column, table[column]).as(SQL_NAMES[column]),
    ]),
  )
  const key = parameters.text('key')
  const columns = { [REST]: sql`substr(${table.key}, length(${key}) + 1)`.as(REST), ...state }
  const isShown = sql`(${parameters.number('ended')} > 0::float8 or ${isLive(table)})`
  return readStatement(source, parameters, columns, isShown)
}

/**
 * The statement that adds up the rows of a key's credits that are not over: what was granted, and what is used
 * or owed. Its answer is one row, however many grants there are.
 */
export function grantSumsStatement(source: GrantsSource): Statement {
  const { table } = source
  const isDebt = sql`${table.windowStart} is null`
  const granted = sql`case when ${isDebt} then 0::float8 else ${fromColumn('prevCount', table.prevCount)} end`
  const sumOf = (numbers: SQL) => sql`coalesce(sum(${numbers}), 0::float8)`
  const columns = {
    granted: sumOf(granted).as('granted'),
    used: sumOf(fromColumn('count', table.count)).as('used'),
  }
  return readStatement(source, new Parameters(), columns, isLive(table))
}

/** Whether a grant is not over. */
function isLive(table: RateLimitTable): SQL {
  return sql`${fromColumn('windowStart', table.windowStart)} > ${name('now', 'timed')}`
}

/** The statement that reads these columns of the debt and of the grants that are shown, and the time. */
function readStatement(
  { table, injectedClock, guarded }: GrantsSource,
  parameters: Parameters,
  columns: Readonly<Record<string, SQL.Aliased>>,
  isShown: SQL,
): Statement {
  const guarding = guard([table], guarded, parameters)
  const rows = builder
    .select(columns)
    .from(table)
    .where(
      and(grantsOf(table, parameters.text('prefix'), parameters.text('key'), isShown), guarding.fits(table)),
    )
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const numbers = Object.keys(columns).filter((column) => column !== REST)
  return guardedStatement(parameters, guarding, settingsOf('as the session'), {
    links: [],
    columns: [...(REST in columns ? [name(REST)] : []), ...answered(['now', ...numbers])],
    from: sql`(select ${name('now')}, ${listOf(Object.keys(columns), 'stored')}
      from (select ${clock} as now offset 0) as timed
      left join lateral (${rows.getSQL()} ${BY_ITSELF}) as stored on true) as seen`,
  })
}

/** Whether a row of the table is the key's debt, or one of its grants that meet the condition. */
export function grantsOf(table: RateLimitTable, prefix: SQL, key: SQL, isShown: SQL): SQL {
  const [debt, grant] = [sql.raw(`'${DEBT}'`), sql.raw(`'${GRANT}'`)]
  const start = sql`${key} || ${grant}`
  // A key may itself begin like the row of a grant. Its rows have one more slash, and no id has one.
  const isOwn = sql`starts_with(${table.key}, ${start}) and strpos(substr(${table.key}, length(${start}) + 1), '/') = 0`
  // The range is for the index. In some collations it has other keys too.
  return sql`${table.prefix} = ${prefix} and ${table.key} between ${key} || ${debt} and ${start} || 'z'
    and ((${table.key} = ${key} || ${debt} and ${isOfKind(ROWS.balance, table)})
      or (${isOwn} and ${isOfKind(ROWS.credits, table)} and ${isShown}))`
}
