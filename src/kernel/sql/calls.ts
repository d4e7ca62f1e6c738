import { type SQL, sql } from 'drizzle-orm'
import { name, type Parameters } from './builder.ts'

/** The columns that calls can have in a statement for many keys. Calls share all other parameters. */
export const CALL_COLUMNS = {
  prefix: 'text',
  key: 'text',
  rate: 'float8',
  calls: 'float8',
  start: 'float8',
  atLeast: 'float8',
  paidWindowStart: 'float8',
  refundableUntil: 'float8',
  reserved: 'float8',
  needed: 'float8',
  forced: 'float8',
  refund: 'float8',
  within: 'float8',
  fence: 'float8',
  since: 'float8',
  madeMs: 'float8',
  payer: 'text',
} as const

export type CallColumn = keyof typeof CALL_COLUMNS

/** Returns a number of a call: a parameter in a statement for one key, a column in a statement for many. */
export type Sent = (what: CallColumn) => SQL<number>

/** The calls as a source of rows. `place` is the position of the call. The first is 1. */
export function callsFrom(parameters: Parameters, columns: readonly CallColumn[], isShown = false): SQL {
  return placed(
    columns,
    columns.map((column) => parameters.array(column, CALL_COLUMNS[column], isShown)),
  )
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
