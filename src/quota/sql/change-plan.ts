import { and, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import type { AnyAlgorithm } from '../../kernel/limits/algorithm.ts'
import { builder, isTheRow, link, name, Parameters } from '../../kernel/sql/builder.ts'
import {
  answered,
  forEach,
  fromColumn,
  isOfKind,
  onGrid,
  SQL_NAMES,
  STATE_COLUMNS,
  storedState,
  toColumn,
} from '../../kernel/sql/columns.ts'
import { guard, guardedStatement, transactionSettings } from '../../kernel/sql/guard.ts'
import { CLOCK_MS, paramsOf, stateOf } from '../../kernel/sql/levels.ts'
import { isOfPeriods } from '../../kernel/sql/places.ts'
import { insertRow, lockedRow, newRows } from '../../kernel/sql/rows.ts'

const [FOUND, TIMED, CHANGED, BEGUN] = [
  'ratelimit_found',
  'ratelimit_timed',
  'ratelimit_changed',
  'ratelimit_begun',
]

export interface ChangePlanSource {
  readonly table: RateLimitTable
  readonly from: AnyAlgorithm
  readonly to: AnyAlgorithm
  readonly injectedClock: boolean
  /** Whether it makes the row if it is missing. Citus would work that out by another server's clock. */
  readonly begins: boolean
  readonly guarded: boolean
}

/**
 * The statement that ends the period of a row now, and begins one of another algorithm or length. It returns
 * the time, whether it is done, and the row as it was before. That is `own` if it was one of the old algorithm.
 * If it is `other`, a window of another algorithm, its count would be lost, and nothing is changed. Without a
 * row `own` is null.
 */
export function changePlanStatement({
  table,
  from,
  to,
  injectedClock,
  begins,
  guarded,
}: ChangePlanSource): Statement {
  const parameters = new Parameters()
  const guarding = guard([table], guarded, parameters)
  const stored = forEach(STATE_COLUMNS, (column) => fromColumn(column, table[column]).as(SQL_NAMES[column]))
  const own = sql`${isOfKind(from, table)}`
  const other = sql`(not ${own} and ${isOfPeriods(table)} and ${table.count} > 0)`
  const found = lockedRow(
    table,
    { own: own.as('own'), other: other.as('other'), ...stored },
    [isTheRow(table, parameters), guarding.fits(table)],
    true,
  )
  // The count is in front of the clock, so that the clock is read after the row is locked.
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const counted = sql`select count(*) as rows, coalesce(bool_or("other"), false) as other from ${name(FOUND)}`
  const timed = sql`select ${clock} as now, rows, other from (${counted}) as counted`
  const [now, params, none] = [name('now', TIMED), paramsOf(to, parameters), sql<number>`0::float8`]
  const state = { ...to.sql.fresh(now, params), windowStart: now }
  const next = to.sql.consume({ ...stateOf(), ...state }, now, none, none, params, none)
  const expiresAt = toColumn('expiresAt', onGrid(to.sql.expiresAt(next, params), parameters))
  const row = { ...storedState(to, next), expiresAt }
  const applies = to.applies?.(now, params) ?? sql`true`
  const changed = builder
    .update(table)
    .set(row)
    .from(name(TIMED))
    .where(
      and(
        isTheRow(table, parameters),
        sql`${name('rows', TIMED)} > 0 and not ${name('other', TIMED)}`,
        applies,
      ),
    )
    .returning({ key: table.key })
  const fits = guarding.fits(table)
  const isNew = sql`${name('rows', TIMED)} = 0 and ${applies} ${fits ? sql`and ${fits}` : sql``}`
  const names = [parameters.text('prefix'), parameters.text('key')] as const
  const begun = insertRow(table, newRows(...names, row, sql`${name(TIMED)} where ${isNew}`))
  const isBegun = begins ? sql`or exists (select from ${name(BEGUN)})` : sql``
  return guardedStatement(parameters, guarding, transactionSettings('as the session'), {
    links: [
      ...[link(FOUND, found), link(TIMED, timed), link(CHANGED, changed)],
      ...(begins ? [link(BEGUN, begun)] : []),
    ],
    columns: [
      ...answered(['now'], TIMED),
      sql`exists (select from ${name(CHANGED)}) ${isBegun} as done`,
      ...['own', 'other'].map((column) => name(column, FOUND)),
      ...answered(Object.values(SQL_NAMES), FOUND),
    ],
    from: sql`(${name(TIMED)} left join ${name(FOUND)} on true)`,
  })
}
