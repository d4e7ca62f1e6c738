import { type SQL, sql, type WithSubquery } from 'drizzle-orm'
import type { AnyAlgorithm, CommonParam, Expression, Expressions } from '../algorithms/algorithm.ts'
import type { Values } from '../database/rendered.ts'
import { forEach } from './columns.ts'
import { aliased, columnsOf } from './link.ts'

/**
 * What a statement is for: one key, many keys that share their other numbers, or several keys with their own.
 *
 * A single key is compared by equality: that plans cheaply, and a sharded Postgres can route it. What all calls of a statement share
 * is a parameter, at hand in every link of the chain; what each has of its own is a column, which the links hand on.
 */
export type Form = 'one' | 'many' | 'several'

/** The numbers that come with every key: an injected time or null, what it takes and how, and of what. */
export type CallNumber = 'clock' | 'rate' | 'calls' | 'force' | 'paidFrom' | CommonParam

const CALL_NUMBERS: readonly CallNumber[] = [
  'clock',
  'rate',
  'calls',
  'force',
  'paidFrom',
  'limit',
  'periodMs',
]
const NAMES = ['prefix', 'key'] as const
/** In what calls of one limiter differ. */
const OWN: readonly string[] = ['key', 'rate', 'calls']

/** Columns of a CTE. */
export type Aliases<Name extends string> = Record<Name, SQL.Aliased<number>>

/** The calls as a link of the chain sees them: whose, and the numbers. */
export interface Calls {
  readonly prefix: Expression
  readonly key: Expression
  /** Which of the statement's calls it is; the first is 1. */
  readonly place: Expression
  readonly numbers: Expressions<CallNumber>
  /** What a link has to select for the next. */
  readonly carried: Readonly<Record<string, SQL.Aliased>>
  /** The same calls as columns of that link. */
  from(cte: WithSubquery): Calls
}

/** The calls, and the source of the chain's first link, a row a call. */
export interface Input {
  readonly source: SQL
  readonly calls: Calls
}

/** A value that is sent with each run. */
export function param<T>(name: string, type: 'text' | 'float8'): SQL<T> {
  return sql`${sql.placeholder(name)}::${sql.raw(type)}`
}

export function inputOf(algorithm: AnyAlgorithm, form: Form): Input {
  if (form === 'one')
    return { source: sql`(values (1)) as call`, calls: callsFrom(algorithm, [], () => sql`1`) }
  const own = form === 'many' ? OWN : [...NAMES, ...numbersOf(algorithm)]
  const { source, column } = batch(own)
  return { source, calls: callsFrom(algorithm, ['place', ...own], column) }
}

/** The calls of which some values are columns of their own, which every link carries; the others are parameters. */
export function callsFrom(
  algorithm: AnyAlgorithm,
  own: readonly string[],
  column: (name: string) => Expression,
): Calls {
  const value = (name: string, type: 'text' | 'float8') =>
    own.includes(name) ? column(name) : param<number>(name, type)
  return {
    prefix: value('prefix', 'text'),
    key: value('key', 'text'),
    place: own.includes('place') ? column('place') : sql`1`,
    numbers: forEach(numbersOf(algorithm), (name) => value(name, 'float8')),
    carried: aliased(Object.fromEntries(own.map((name) => [aliasOf(name), column(name)]))),
    from: (cte) => {
      const columns = columnsOf(cte, own.map(aliasOf))
      return callsFrom(algorithm, own, (name) => columns[aliasOf(name)] ?? sql`null`)
    },
  }
}

/** The algorithm's own parameters ride along; it alone knows their names. */
function numbersOf(algorithm: AnyAlgorithm): CallNumber[] {
  return [...CALL_NUMBERS, ...algorithm.params] as CallNumber[]
}

/** No alias is the name of a column of the table. */
function aliasOf(name: string): string {
  return { prefix: 'callPrefix', key: 'callKey' }[name] ?? name
}

interface Batch {
  readonly source: SQL
  column(name: string): SQL<number>
}

/**
 * Many calls come as columns, each an array written as text: drivers encode arrays in ways of their own, pg-proxy in none. JSON would
 * take Postgres several times as long to read.
 */
export function batch(names: readonly string[]): Batch {
  const arrays = names.map((name) => {
    const isText = name === 'prefix' || name === 'key'
    return sql`${param(name, 'text')}::${sql.raw(isText ? 'text[]' : 'float8[]')}`
  })
  const columns = [...names, 'place'].map((name) => sql.identifier(name))
  return {
    source: sql`unnest(${sql.join(arrays, sql`, `)}) with ordinality as call (${sql.join(columns, sql`, `)})`,
    column: (name) => sql`call.${sql.identifier(name)}`,
  }
}

/** The values of `batch`, from those of each call. */
export function batchOf(calls: readonly Values[]): Values {
  const [first] = calls
  return first
    ? forEach(Object.keys(first), (name) => arrayText(calls.map((call) => call[name] ?? null)))
    : {}
}

/** The form of the statement for these calls. */
export function formOf([first, ...others]: readonly Values[]): Form {
  if (!first || others.length === 0) return 'one'
  const shared = Object.keys(first).filter((name) => !OWN.includes(name))
  return others.every((other) => shared.every((name) => other[name] === first[name])) ? 'many' : 'several'
}

/** The parameters of the statement of that form. */
export function bindOf(form: Form, calls: readonly Values[]): Values {
  if (form === 'several') return batchOf(calls)
  if (form === 'one') return calls[0] ?? {}
  return { ...calls[0], ...batchOf(calls.map((call) => forEach(OWN, (name) => call[name] ?? null))) }
}

/**
 * In the order in which rows are locked and inserted everywhere, so that no two statements wait for each other. Postgres takes the rows of an
 * array one after the other.
 */
export function inLockOrder<T>(
  calls: readonly T[],
  nameOf: (call: T) => { prefix: string; key: string },
): T[] {
  return calls.toSorted((one, other) => {
    const [a, b] = [nameOf(one), nameOf(other)]
    return compare(a.prefix, b.prefix) || compare(a.key, b.key)
  })
}

function compare(one: string, other: string): number {
  return one < other ? -1 : Number(one > other)
}

/** https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO */
function arrayText(values: readonly (string | number | null)[]): string {
  const elements = values.map((value) =>
    typeof value === 'string' ? `"${value.replaceAll(/["\\]/g, '\\$&')}"` : (value ?? 'NULL'),
  )
  return `{${elements.join()}}`
}
