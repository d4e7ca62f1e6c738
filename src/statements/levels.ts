import { type SQL, sql } from 'drizzle-orm'
import type { AnyAlgorithm, Expressions, Rules, StateColumn } from '../algorithms/algorithm.ts'
import { name, type Parameters } from './builder.ts'
import { forEach, fromColumn, SQL_NAMES, STATE_COLUMNS } from './columns.ts'
import { onGrid } from './expiry.ts'

/** Rows to select from, and their columns. */
export interface Level {
  readonly source: SQL
  readonly columns: readonly string[]
}

/** A level that is a query. */
export interface QueryLevel extends Level {
  readonly query: SQL
}

/**
 * One step of the arithmetic: the level below, and new columns worked out from it.
 *
 * Without the `offset`, Postgres writes an expression out again for each of its uses, and setting up an
 * expression costs more than evaluating it.
 */
export function level(
  alias: string,
  below: Level,
  columns: Readonly<Record<string, SQL>>,
  without: readonly string[] = [],
): QueryLevel {
  const kept = below.columns.filter((column) => !(column in columns) && !without.includes(column))
  const list = [
    ...kept.map((column) => name(column)),
    ...Object.entries(columns).map(([column, value]) => sql`${value} as ${name(column)}`),
  ]
  const query = sql`select ${sql.join(list, sql`, `)} from ${below.source}`
  return {
    query,
    source: sql`(${query} offset 0) as ${name(alias)}`,
    columns: [...kept, ...Object.keys(columns)],
  }
}

/** Finds a column of the level below, or of a link, by its name. */
export type Column = (column: string) => SQL<number>

/** A state's columns by their names, as the next level sees them. An algorithm uses its own columns only. */
export function stateOf(of: Column = name): Expressions<StateColumn> {
  return forEach(STATE_COLUMNS, (column) => of(SQL_NAMES[column]))
}

/** A state's expressions by their names in SQL. */
function named(state: Partial<Expressions<StateColumn>>): Record<string, SQL> {
  return Object.fromEntries(
    Object.entries(state).map(([column, value]) => [SQL_NAMES[column as StateColumn], value]),
  )
}

/** The algorithm's parameters, sent once each. */
export function paramsOf({ params }: AnyAlgorithm, parameters: Parameters): Record<string, SQL<number>> {
  const found = {}
  for (const each of ['limit', 'periodMs', 'expiryGridMs', ...params]) {
    // A parameter that no formula uses is not sent.
    Object.defineProperty(found, each, { get: () => parameters.number(each), enumerable: true })
  }
  return found
}

/**
 * Makes Postgres run a query once for each key. Otherwise it would turn the query into a join that reads the
 * whole table.
 */
export const BY_ITSELF: SQL = sql.raw('offset 0')

/** The database's clock at millisecond precision. */
export const CLOCK_MS: SQL<number> = sql<number>`floor(date_part('epoch', clock_timestamp()) * 1000::float8)`

/** Asks for it alone: `now`. */
export const CLOCK: SQL = sql`select ${CLOCK_MS} as now`

interface AdvancedOptions {
  readonly keepHolds?: boolean
  /** Whether to hand on what the period used that is over. */
  readonly tellsEnded?: boolean
  /** The start of the window that has paid, if the calls settle or give back. */
  readonly paid?: (() => SQL<number>) | undefined
  /** What the rows call the stored columns. Default: as the table does. */
  readonly stored?: (column: string) => string
}

/** Whether the row is of another algorithm or period, and has not expired. */
export const OTHER = 'other'

/** When the period of a row began that is over, what was used in it and what of that is reserved; or null. */
export const ENDED = 'ended'

/**
 * The levels from rows to advanced states: each row's numbers, its time, and the state at that time.
 *
 * If a row is ahead of the clock by up to a period, it was written by a clock that is ahead, and its time
 * counts as now. This limiter cannot have written a row further ahead. Such a row starts afresh; otherwise it
 * would deny until the clock reaches its time.
 */
export function advanced(
  { algorithm, startsFull, refusesOther = false }: Rules,
  rows: Level,
  clock: SQL,
  parameters: Parameters,
  { keepHolds = !startsFull, tellsEnded = false, paid, stored = (column) => column }: AdvancedOptions = {},
): QueryLevel {
  const { columns, datedBy, sql: formulas } = algorithm
  const row = stateOf()
  const params = paramsOf(algorithm, parameters)
  const own = [...columns.map((column) => SQL_NAMES[column]), ...(refusesOther ? ['expires', 'alien'] : [])]
  const read = level(
    'read',
    rows,
    {
      ...Object.fromEntries(
        columns.map((column) => [SQL_NAMES[column], fromColumn(column, name(stored(SQL_NAMES[column])))]),
      ),
      ...(refusesOther
        ? { expires: fromColumn('windowStart', name(stored('expires'))), alien: name(stored('alien')) }
        : {}),
      clock,
    },
    own.map(stored),
  )
  const [clockMs, written] = [name('clock'), name(SQL_NAMES[datedBy])]
  const holds = formulas.holds(row, clockMs, params)
  const told = { ...(tellsEnded ? endedColumn() : {}), ...(refusesOther ? otherColumn() : {}) }
  const dated = level('dated', read, { holds, ...told }, refusesOther ? ['expires', 'alien'] : [])
  const kept = named(formulas.advance?.(row, clockMs, params) ?? row)
  const made = named(formulas.fresh(clockMs, params))
  const states = columns
    .map((each) => SQL_NAMES[each])
    .map((column) => [column, sql`case when holds then ${kept[column]} else ${made[column]} end`])
  const now =
    formulas.now?.(row, clockMs, params) ??
    sql`case when holds then greatest(${clockMs}, ${written}) else ${clockMs} end`
  return level('advanced', dated, { now, ...Object.fromEntries(states) }, [
    'clock',
    ...(keepHolds ? [] : ['holds']),
  ])

  function otherColumn(): Record<string, SQL> {
    const expires = name('expires')
    const isOfPeriod = formulas.isOfPeriod?.(row, expires, params, (time) => onGrid(time, parameters), paid)
    const isOther = isOfPeriod ? sql`(alien or not (${isOfPeriod}))` : sql`alien`
    // Once a row has expired, it is as good as none.
    return { [OTHER]: sql`coalesce(${expires} > ${clockMs} and ${isOther}, false)` }
  }

  function endedColumn(): Record<string, SQL> {
    const ended = formulas.ended?.(row, clockMs, params)
    if (!ended) return {}
    const told = [
      written,
      formulas.used(row, clockMs, params),
      ...(formulas.reserved ? [formulas.reserved(row)] : []),
    ]
    return { [ENDED]: sql`case when ${ended} then pg_catalog.concat_ws(' ', ${sql.join(told, sql`, `)}) end` }
  }
}

/** The levels to the states of keys that have no row. */
export function fresh(
  { algorithm, startsFull }: Rules,
  calls: Level,
  clock: SQL,
  parameters: Parameters,
): QueryLevel {
  const dated = level('dated', calls, {
    now: clock,
    ...(startsFull ? {} : { holds: sql`false` }),
  })
  const params = paramsOf(algorithm, parameters)
  return level('advanced', dated, named(algorithm.sql.fresh(name('now'), params)))
}
