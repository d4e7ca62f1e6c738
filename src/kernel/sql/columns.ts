import { and, isNotNull, isNull, or, type SQL, type SQLWrapper, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type {
  AnyAlgorithm,
  Expression,
  Expressions,
  RowKind,
  Rules,
  StateColumn,
} from '../limits/algorithm.ts'
import { name, type Parameters } from './builder.ts'

// Converts between a row and the arithmetic, where numbers are double precision and times Unix milliseconds.

export const SQL_NAMES: Readonly<Record<StateColumn, string>> = {
  count: 'count',
  prevCount: 'prev_count',
  windowStart: 'window_start',
  tokens: 'tokens',
  lastRefill: 'last_refill',
}

export const STATE_COLUMNS = Object.keys(SQL_NAMES) as readonly StateColumn[]

const COLUMN_TYPES = {
  count: 'bigint',
  prevCount: 'bigint',
  windowStart: 'timestamptz',
  tokens: 'float8',
  lastRefill: 'timestamptz',
  expiresAt: 'timestamptz',
} as const

export function fromColumn(column: StateColumn, stored: SQLWrapper): SQL<number> {
  // Times are stored in whole milliseconds. Rounding removes the error of the floating-point epoch.
  if (COLUMN_TYPES[column] === 'timestamptz') return sql`round(date_part('epoch', ${stored}) * 1000::float8)`
  // Other programs may write to the table too. A count below 0 must not allow more than the limit.
  return COLUMN_TYPES[column] === 'bigint'
    ? sql`(case when ${stored} < 0 then 0 else ${stored} end)::float8`
    : sql`${stored}`
}

/** A number of the arithmetic as the column stores it. Null if the algorithm does not use the column. */
export function toColumn(column: keyof typeof COLUMN_TYPES, value: Expression | undefined): SQL {
  const type = sql.raw(COLUMN_TYPES[column])
  if (!value) return sql`null::${type}`
  if (COLUMN_TYPES[column] === 'timestamptz') return sql`to_timestamp((${value}) / 1000::float8)`
  return COLUMN_TYPES[column] === 'float8' ? value : sql`(${value})::${type}`
}

/** A state of an algorithm as its columns store it. The other columns are null. */
export function storedState({ columns }: RowKind, state: Expressions<StateColumn>): Record<StateColumn, SQL> {
  return forEach(STATE_COLUMNS, (column) =>
    toColumn(column, columns.includes(column) ? state[column] : undefined),
  )
}

/** The latest expiry, in the year 255,000. Postgres timestamps end in 294,276, and a debt may last longer. */
export const MAX_TIME: SQL<number> = sql.raw('8e15::float8') as SQL<number>

/** The time at which a row expires. It is rounded up, so that most updates do not change it. */
export function onGrid(time: SQL<number>, parameters: Parameters): SQL<number> {
  const grid = parameters.number('expiryGridMs')
  return sql<number>`least(ceil((${time}) / ${grid}) * ${grid}, ${MAX_TIME})`
}

export function forEach<Name extends string, T>(
  names: readonly Name[],
  make: (name: Name) => T,
): Record<Name, T> {
  return Object.fromEntries(names.map((each) => [each, make(each)])) as Record<Name, T>
}

/** The columns of a row in a query: of a table, or of an alias. */
export type RowColumns = Readonly<Record<StateColumn, SQLWrapper>>

/** Whether the row is of this kind: it fills exactly these columns, and perhaps optional ones. */
export function isOfKind({ columns, optional = [] }: RowKind, row: RowColumns): SQL {
  const named = STATE_COLUMNS.filter((column) => !optional.includes(column))
  return sql`${and(
    ...named.map((column) => (columns.includes(column) ? isNotNull(row[column]) : isNull(row[column]))),
  )}`
}

/**
 * The optional columns that a statement of the algorithm leaves as they are, in a row of its own. Only rows
 * with optional columns have no count, and each of their kinds has another date. Two tests are cheaper than
 * all.
 */
export function leftColumns(
  { columns, optional = [], datedBy }: RowKind,
  row: RowColumns,
): { [column in StateColumn]?: SQL } {
  const isOwn = and(isNull(row.count), isNotNull(row[datedBy]))
  const left = optional.filter((column) => !columns.includes(column))
  return Object.fromEntries(left.map((column) => [column, sql`case when ${isOwn} then ${row[column]} end`]))
}

/**
 * Numbers as they are sent to the client: the eight bytes of each, in hexadecimal. Postgres writes a double
 * precision number with 15 digits if the session's `extra_float_digits` is 0. These numbers need up to 17.
 * Null if one of them is null.
 */
export function exact(...numbers: readonly SQLWrapper[]): SQL {
  const bytes = numbers.map((number) => sql`pg_catalog.float8send(${number})`)
  return sql`pg_catalog.encode(${sql.join(bytes, sql` || `)}, 'hex')`
}

/** The column with the numbers of a decision. One long text costs less than a short one for each number. */
export const NUMBERS = 'numbers'

export function decisionNumbers(
  { columns, optional = [] }: RowKind,
  more: readonly string[],
  of: (column: string) => SQL = (column) => name(column),
  named: string = NUMBERS,
): SQL {
  const state = columns.map((column) => {
    const number = of(SQL_NAMES[column])
    return optional.includes(column) ? sql`coalesce(${number}, 0::float8)` : number
  })
  return sql`${exact(of('now'), ...state, ...more.map((column) => of(column)))} as ${name(named)}`
}

export function stateColumns({ columns }: AnyAlgorithm): readonly string[] {
  return columns.map((column) => SQL_NAMES[column])
}

/** The columns of a row that the arithmetic reads. A row of another algorithm is read without its date. */
export function rowColumns(row: RowColumns, algorithm: AnyAlgorithm): Record<string, SQL.Aliased> {
  const { columns, optional = [], datedBy } = algorithm
  // A date that is null is read as null, so it needs no test.
  const isOwn = isOfKind({ ...algorithm, optional: [...optional, datedBy] }, row)
  const date = sql`case when ${isOwn} then ${row[datedBy]} end`
  return Object.fromEntries(
    columns.map((column) => {
      const value = column === datedBy ? date : sql`${row[column]}`
      return [SQL_NAMES[column], value.as(SQL_NAMES[column])]
    }),
  )
}

/**
 * The columns of a row that the rules read. If the rules refuse rows of another plan, they also need the time
 * of expiry and `alien`: whether the row belongs to another algorithm. A row without a state belongs to none.
 */
export function lockedColumns(
  table: RateLimitTable,
  { algorithm, refusesOther = false }: Rules,
): Record<string, SQL.Aliased> {
  const columns = rowColumns(table, algorithm)
  if (!refusesOther) return columns
  const isFilled = or(...STATE_COLUMNS.map((column) => isNotNull(table[column])))
  return {
    ...columns,
    expires: sql`${table.expiresAt}`.as('expires'),
    alien: sql`(${isFilled}) and not (${isOfKind(algorithm, table)})`.as('alien'),
  }
}

export function answered(columns: readonly string[], of?: string): SQL[] {
  return columns.map((column) => sql`${exact(name(column, of))} as ${name(column)}`)
}
