import { type SQL, sql } from 'drizzle-orm'
import type { AnyAlgorithm, Expressions, Rules, StateColumn } from '../limits/algorithm.ts'
import { name, type Parameters } from './builder.ts'
import { exact, forEach, fromColumn, onGrid, SQL_NAMES, STATE_COLUMNS } from './columns.ts'

export interface Level {
  readonly source: SQL
  readonly columns: readonly string[]
  /** Whether Postgres may copy the expressions, because Citus refuses an `offset` here. Default: `false`. */
  readonly isOpen?: boolean | undefined
}

export interface QueryLevel extends Level {
  readonly query: SQL
}

/**
 * One step of the arithmetic: the columns of the level below, and new columns worked out from them.
 *
 * Without the `offset`, Postgres would copy an expression to each place that uses it, and setting up an
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
  const { isOpen } = below
  return {
    query,
    source: isOpen ? sql`(${query}) as ${name(alias)}` : sql`(${query} offset 0) as ${name(alias)}`,
    columns: [...kept, ...Object.keys(columns)],
    isOpen,
  }
}

/** Returns a column of the level below, or of a link, by its name. */
export type ColumnByName = (column: string) => SQL<number>

/** The columns of a state, as the next level sees them. An algorithm uses only its own columns. */
export function stateOf(of: ColumnByName = name): Expressions<StateColumn> {
  return forEach(STATE_COLUMNS, (column) => of(SQL_NAMES[column]))
}

function namedColumns(state: Expressions<StateColumn>): Record<string, SQL> {
  return Object.fromEntries(
    Object.entries(state).map(([column, value]) => [SQL_NAMES[column as StateColumn], value]),
  )
}

/** The parameters of the algorithm. Each is sent once, unless `limit` stands in its place. */
export function paramsOf(
  { params }: AnyAlgorithm,
  parameters: Parameters,
  limit?: SQL<number>,
): Record<string, SQL<number>> {
  const found = {}
  for (const each of ['limit', 'periodMs', 'expiryGridMs', ...params]) {
    // A parameter that no formula uses is not sent.
    Object.defineProperty(found, each, {
      get: () => (each === 'limit' && limit) || parameters.number(each),
      enumerable: true,
    })
  }
  return found
}

/** Makes Postgres run a query once for each key, and not as a join that reads the whole table. */
export const BY_ITSELF: SQL = sql.raw('offset 0')

export const CLOCK_MS: SQL<number> = sql<number>`floor(date_part('epoch', clock_timestamp()) * 1000::float8)`

export interface Step {
  readonly columns: Readonly<Record<string, SQL>>
  readonly without: readonly string[]
}

/** A level of several steps that do not need each other. */
export function inStep(alias: string, below: Level, steps: readonly Step[]): QueryLevel {
  const columns = steps.flatMap((step) => Object.entries(step.columns))
  const without = steps.flatMap((step) => step.without)
  return level(alias, below, Object.fromEntries(columns), without)
}

interface AdvancedOptions {
  readonly keepHolds?: boolean
  /** Whether to add `ended`: the period of the row, if it is over. */
  readonly withEnded?: boolean
  /** For calls that settle or give back: the start of the window that paid. */
  readonly paid?: (() => SQL<number>) | undefined
}

/** For rows whose numbers and time cost nothing to read again. */
interface ReadOptions extends AdvancedOptions {
  readonly clock: SQL<number>
  readonly named: (column: string) => string
}

/** Whether the row is of another algorithm or period, and has not expired. */
export const OTHER = 'other'

/** The start, the usage and the reserved part of a row's period, if that is over. Otherwise null. */
export const ENDED = 'ended'

/**
 * The levels from rows to advanced states: the numbers of each row, its time, and the state at that time.
 *
 * A row may be ahead of the clock by up to a period, because another clock was ahead when it was written. Its
 * time then counts as now. This limiter cannot have written a row further ahead. Such a row starts again;
 * otherwise it would deny calls until the clock reaches its time.
 */
export function advanced(
  rules: Rules,
  rows: Level,
  clock: SQL,
  parameters: Parameters,
  options: AdvancedOptions = {},
): QueryLevel {
  const read = level('read', rows, { ...numbersFrom(rules, name), clock })
  const named = (column: string) => column
  const steps = stepsFrom(rules, parameters, { ...options, clock: name('clock'), named })
  const { columns, without } = steps.advanced
  return level('advanced', inStep('dated', read, [steps.dated]), columns, ['clock', ...without])
}

export function numbersFrom({ algorithm, refusesOther }: Rules, of: ColumnByName): Record<string, SQL> {
  const columns = algorithm.columns.map((column) => [column, SQL_NAMES[column]] as const)
  return {
    ...Object.fromEntries(columns.map(([column, each]) => [each, fromColumn(column, of(each))])),
    ...(refusesOther ? { expires: fromColumn('windowStart', of('expires')), alien: of('alien') } : {}),
  }
}

/** The steps from the numbers of a row to its advanced state; see {@link advanced}. */
export function stepsFrom(
  { algorithm, startsFull, refusesOther = false }: Rules,
  parameters: Parameters,
  { keepHolds = !startsFull, withEnded = false, paid, clock: clockMs, named }: ReadOptions,
): { readonly dated: Step; readonly advanced: Step } {
  const { columns, datedBy, sql: formulas } = algorithm
  const of: ColumnByName = (column) => name(named(column))
  const row = stateOf(of)
  const params = paramsOf(algorithm, parameters)
  const written = of(SQL_NAMES[datedBy])
  // A row of another algorithm is read without its date.
  const isOwn = sql`${written} is not null`
  const holds = formulas.holds ? sql`${isOwn} and (${formulas.holds(row, clockMs, params)})` : isOwn
  const reported = { ...(withEnded ? endedColumn() : {}), ...(refusesOther ? otherColumn() : {}) }
  const kept = formulas.advance?.(row, clockMs, params) ?? row
  const made = formulas.fresh(clockMs, params)
  const states = columns.map((each) => [
    SQL_NAMES[each],
    sql`case when ${of('holds')} then ${kept[each]} else ${made[each]} end`,
  ])
  const now =
    formulas.now?.(row, clockMs, params) ??
    sql`case when ${of('holds')} then greatest(${clockMs}, ${written}) else ${clockMs} end`
  return {
    dated: step({ holds, ...reported }, refusesOther ? ['expires', 'alien'] : []),
    advanced: step({ now, ...Object.fromEntries(states) }, keepHolds ? [] : ['holds']),
  }

  function step(added: Record<string, SQL>, without: readonly string[]): Step {
    const all = Object.entries(added).map(([column, value]) => [named(column), value])
    return { columns: Object.fromEntries(all), without: without.map(named) }
  }

  function otherColumn(): Record<string, SQL> {
    const [expires, alien] = [of('expires'), of('alien')]
    const isOfPeriod = formulas.isOfPeriod?.(row, expires, params, (time) => onGrid(time, parameters), paid)
    // A row that was just inserted has no state yet, and is of no period.
    const isOther = isOfPeriod ? sql`(${alien} or ${isOwn} and not (${isOfPeriod}))` : alien
    // An expired row counts as no row.
    return { [OTHER]: sql`coalesce(${expires} > ${clockMs} and ${isOther}, false)` }
  }

  function endedColumn(): Record<string, SQL> {
    const ended = formulas.ended?.(row, clockMs, params)
    if (!ended) return {}
    const numbers = [
      written,
      formulas.used(row, clockMs, params),
      ...(formulas.reserved ? [formulas.reserved(row)] : []),
    ]
    return {
      [ENDED]: sql`case when ${ended} then ${exact(...numbers)} end`,
    }
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
  return level('advanced', dated, namedColumns(algorithm.sql.fresh(name('now'), params)))
}
