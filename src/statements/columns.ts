import { type SQL, type SQLWrapper, sql } from 'drizzle-orm'
import type { Expression, StateColumn } from '../algorithms/algorithm.ts'

// Between a row and the arithmetic: every number is double precision, every time is Unix milliseconds.

export const STATE_COLUMNS: readonly StateColumn[] = [
  'count',
  'prevCount',
  'windowStart',
  'tokens',
  'lastRefill',
]

const TYPES = {
  count: 'bigint',
  prevCount: 'bigint',
  windowStart: 'timestamptz',
  tokens: 'float8',
  lastRefill: 'timestamptz',
  expiresAt: 'timestamptz',
} as const

/** A stored column as the arithmetic reads it. Times were written at whole milliseconds; rounding undoes the floating epoch. */
export function fromColumn(name: StateColumn, column: SQLWrapper): SQL<number> {
  return TYPES[name] === 'timestamptz'
    ? sql`round(date_part('epoch', ${column}) * 1000)`
    : sql`${column}::float8`
}

/** A number of the arithmetic as the column stores it; nothing where the algorithm does not use the column. */
export function toColumn(column: keyof typeof TYPES, value: Expression | undefined): SQL {
  const type = sql.raw(TYPES[column])
  if (!value) return sql`null::${type}`
  return TYPES[column] === 'timestamptz' ? sql`to_timestamp(${value} / 1000)` : sql`${value}::${type}`
}

/** For each of `names`, what `make` makes of it. */
export function forEach<Name extends string, T>(
  names: readonly Name[],
  make: (name: Name) => T,
): Record<Name, T> {
  return Object.fromEntries(names.map((name) => [name, make(name)])) as Record<Name, T>
}
