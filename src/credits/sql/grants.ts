import { and, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import { ROWS } from '../../kernel/limits/rows.ts'
import { builder, columnList, name, Parameters } from '../../kernel/sql/builder.ts'
import { callsFrom } from '../../kernel/sql/calls.ts'
import {
  answered,
  decisionNumbers,
  fromColumn,
  isOfKind,
  SQL_NAMES,
  STATE_COLUMNS,
} from '../../kernel/sql/columns.ts'
import { guard, guardedStatement, type PlanGuard, transactionSettings } from '../../kernel/sql/guard.ts'
import { BY_ITSELF, CLOCK_MS } from '../../kernel/sql/levels.ts'
import { DEBT, GRANT } from '../keys.ts'

// Reads of the rows of a key's credits.

/** The column with what the key of a row has after the limited key. */
const REST = 'rest'

/** The limited key, one of several. */
const KEY = sql`call.key`

/** The time and the state of a row, and more numbers. What is null is sent as 0. */
function rowNumbers(...more: readonly string[]): SQL {
  const orZero = (column: string) => sql`coalesce(${name(column)}, 0::float8)`
  return decisionNumbers(ROWS.credits, more, orZero)
}

export interface GrantsSource {
  readonly table: RateLimitTable
  readonly injectedClock: boolean
  readonly guarded: boolean
}

/** The rows of a key in the order in which they pay: first the debt, and then the grants. */
const IN_ORDER = sql`order by window_start is null desc, tokens, window_start, last_refill, rest collate "C" rows unbounded preceding`

/**
 * The statement that reads rows of the credits of keys, at `most` that many of each key. It takes no lock. Its
 * answer has at least one row for each key, with the time. `rest` is what the key of a row has after the
 * limited key. Without `ended` it leaves out grants that are over.
 */
export function grantsStatement(source: GrantsSource): Statement {
  const { table } = source
  const parameters = new Parameters()
  const columns = grantColumns(table)
  const isShown = sql`(${parameters.number('ended')} > 0::float8 or ${isLive(table)})`
  const most = sql`limit ${parameters.integer('most')}`
  const { guarding, seen } = grantRows(source, parameters, columns, isShown, most)
  return guardedStatement(parameters, guarding, transactionSettings('as the session'), {
    links: [],
    columns: [name('place'), name(REST), rowNumbers()],
    from: seen,
  })
}

/** Longer than calls wait for a row that others hold. */
const SOON = sql.raw('60000::float8')

/**
 * The same for a key with many grants: it leaves out what a call does not need. The answer has the debt, and
 * the first grants that have the rate together, but at least a number of `rows`. With `back` it has the last
 * grants of which that much is used. Those that end soon are there too, because they may end before the call
 * is decided. Each row has the sums over all, and the time until which there is the `least`, or all if that is
 * less.
 */
export function neededGrantsStatement(source: GrantsSource): Statement {
  const { table } = source
  const parameters = new Parameters()
  const columns = grantColumns(table)
  const { guarding, seen } = grantRows(source, parameters, columns, isLive(table))
  const [rate, owes] = [parameters.number('rate'), sql`window_start is null`]
  const has = sql`select *, case when ${owes} then 0::float8 else prev_count end as cap, ${owes} as owes,
      case when ${owes} then 0::float8 else prev_count end - count as own
    from ${seen} ${BY_ITSELF}`
  const running = sql`select *, row_number() over in_order as position, sum(own) over in_order - own as before,
      count(*) filter (where own > 0::float8) over in_order as nth, sum(count) over in_order as earlier,
      sum(own) over (order by window_start desc) as lasting
    from (${has}) as has window in_order as (${IN_ORDER}) ${BY_ITSELF}`
  const summed = sql`select *, coalesce(sum(cap) over (), 0::float8) as granted, coalesce(sum(count) over (), 0::float8) as used,
      coalesce(max(window_start) filter (where lasting >= ${parameters.number('least')}) over (), min(window_start) filter (where own > 0::float8) over ()) as lasts
    from (${running}) as running ${BY_ITSELF}`
  const needed = sql`case when ${parameters.number('back')} > 0::float8 then count > 0::float8 and used - earlier < ${rate}
      else own > 0::float8 and (before < ${rate} or nth <= ${parameters.number('rows')}) end`
  return guardedStatement(parameters, guarding, transactionSettings('as the session'), {
    links: [],
    columns: [name(REST), rowNumbers('granted', 'used', 'lasts')],
    from: sql`(select * from (${summed}) as summed where owes or ${needed} or position = 1
      or window_start < now + ${SOON}) as seen`,
  })
}

/**
 * The statement that adds up the rows of the credits of keys that are not over: what was granted, and what is
 * used or owed. Its answer is one row for each key, however many grants there are.
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
  const parameters = new Parameters()
  const { guarding, seen } = grantRows(source, parameters, columns, isLive(table))
  return guardedStatement(parameters, guarding, transactionSettings('as the session'), {
    links: [],
    columns: [name('place'), ...answered(['now', ...Object.keys(columns)])],
    from: seen,
  })
}

/** What the key of a row has after the limited key, and its state. */
function grantColumns(table: RateLimitTable): Readonly<Record<string, SQL.Aliased>> {
  const state = STATE_COLUMNS.map((column) => [
    SQL_NAMES[column],
    fromColumn(column, table[column]).as(SQL_NAMES[column]),
  ])
  const rest = sql`substr(${table.key}, length(${KEY}) + 1)`.as(REST)
  return { [REST]: rest, ...Object.fromEntries(state) }
}

/** Whether a grant is not over. */
function isLive(table: RateLimitTable): SQL {
  return sql`${fromColumn('windowStart', table.windowStart)} > ${name('now', 'timed')}`
}

/**
 * These columns of the debt and of the grants that are shown, and the time, for each of the keys. There is at
 * least one row for each.
 */
function grantRows(
  { table, injectedClock, guarded }: GrantsSource,
  parameters: Parameters,
  columns: Readonly<Record<string, SQL.Aliased>>,
  isShown: SQL,
  most: SQL = BY_ITSELF,
): { readonly guarding: PlanGuard; readonly seen: SQL } {
  const guarding = guard([table], guarded, parameters)
  const rows = builder
    .select(columns)
    .from(table)
    .where(and(isGrantOf(table, parameters.text('prefix'), KEY, isShown), guarding.fits(table)))
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const seen = sql`(select ${columnList(['place', 'now'])}, ${columnList(Object.keys(columns), 'stored')}
      from (select ${clock} as now offset 0) as timed cross join ${callsFrom(parameters, ['key'])}
      left join lateral (${rows.getSQL()} ${most}) as stored on true) as seen`
  return { guarding, seen }
}

/** Whether a row of the table is the key's debt, or one of its grants that meet the condition. */
export function isGrantOf(table: RateLimitTable, prefix: SQL, key: SQL, isShown: SQL): SQL {
  const [debt, grant] = [sql.raw(`'${DEBT}'`), sql.raw(`'${GRANT}'`)]
  const start = sql`${key} || ${grant}`
  // A key may itself begin like the row of a grant. Its rows have one more slash, and no id has one.
  const isOwn = sql`starts_with(${table.key}, ${start}) and strpos(substr(${table.key}, length(${start}) + 1), '/') = 0`
  // The range is for the index. In some collations it has other keys too.
  return sql`${table.prefix} = ${prefix} and ${table.key} between ${key} || ${debt} and ${start} || 'z'
    and ((${table.key} = ${key} || ${debt} and ${isOfKind(ROWS.balance, table)})
      or (${isOwn} and ${isOfKind(ROWS.credits, table)} and ${isShown}))`
}
