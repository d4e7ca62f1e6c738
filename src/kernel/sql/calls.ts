import { type SQL, sql } from 'drizzle-orm'
import { name, type Parameters } from './builder.ts'

/** The columns that calls can have in a statement for many keys. Calls share all other parameters. */
export type CallColumn =
  | 'key'
  | 'rate'
  | 'calls'
  | 'atLeast'
  | 'paidWindowStart'
  | 'refundableUntil'
  | 'reserved'
  | 'needed'
  | 'forced'
  | 'refund'
  | 'within'

/** The calls as a source of rows. `place` is the position of the call. The first is 1. */
export function callsFrom(parameters: Parameters, columns: readonly string[], isShown = false): SQL {
  return placed(
    columns,
    columns.map((column) => parameters.array(column, typeOf(column), isShown)),
  )
}

/** The type of a column of calls. The numbers of limiters can be such columns too. */
export function typeOf(column: string): 'text' | 'float8' {
  return ['prefix', 'key', 'payer'].includes(column) ? 'text' : 'float8'
}

/** Arrays of one length as a source of rows, `call`. `place` is the position in the arrays. The first is 1. */
export function placed(columns: readonly string[], arrays: readonly SQL[]): SQL {
  const values = arrays.map((array) => sql`pg_catalog.unnest(${array})`)
  const names = [...columns, 'place'].map((column) => name(column))
  return sql`rows from (${sql.join(values, sql`, `)}) with ordinality as call (${sql.join(names, sql`, `)})`
}

/** An array of Postgres as text. https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO */
export function textArray(values: readonly string[]): string {
  let text = '{'
  for (const value of values) {
    text += text.length > 1 ? ',"' : '"'
    text += /["\\]/.test(value) ? value.replaceAll(/["\\]/g, '\\$&') : value
    text += '"'
  }
  return `${text}}`
}

export function numberArray(values: readonly (number | null)[]): string {
  // `join` writes null as nothing, and Postgres needs the word.
  return `{${(values.includes(null) ? values.map(String) : values).join()}}`
}

/**
 * The order in which every statement locks and inserts rows, so that no two statements wait for each other.
 * Postgres takes the rows of an array one after the other.
 */
export function compareText(one: string, other: string): number {
  return one < other ? -1 : Number(one > other)
}
