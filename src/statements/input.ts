import { type SQL, sql, type WithSubquery } from 'drizzle-orm'
import type { AnyAlgorithm, CommonParam, Expressions } from '../algorithms/algorithm.ts'
import type { Values } from '../database/rendered.ts'
import { builder } from './builder.ts'
import { forEach } from './columns.ts'
import { columnsOf } from './link.ts'

/** How many keys a statement is for. A single one is compared by equality: that plans cheaply, and a sharded Postgres can route it. */
export type Form = 'one' | 'many'

/** The numbers that come with every key: its place among those of the statement, an injected time or null, and what it takes. */
export type CallNumber = 'place' | 'clock' | 'rate' | 'calls' | CommonParam

const CALL_NUMBERS: readonly CallNumber[] = ['place', 'clock', 'rate', 'calls', 'limit', 'periodMs']

/** Columns of a CTE. */
export type Aliases<Name extends string> = Record<Name, SQL.Aliased<number>>

/** The calls as a link of the chain sees them: whose, and the numbers. */
export interface Calls {
  readonly prefix: SQL | SQL.Aliased
  readonly key: SQL | SQL.Aliased
  readonly numbers: Expressions<CallNumber>
  /** What a link has to select for the next: many calls' columns. A single call's are parameters, at hand everywhere. */
  readonly carried: Readonly<Record<string, SQL.Aliased>>
  /** The same calls as columns of that link. */
  from(cte: WithSubquery): Calls
}

/** The calls, and the source of the chain's first link, a row a call. */
export interface Input {
  readonly cte: WithSubquery | undefined
  readonly source: SQL | WithSubquery
  readonly calls: Calls
}

/** A value that is sent with each run. */
export function param<T>(name: string, type: 'text' | 'float8'): SQL<T> {
  return sql`${sql.placeholder(name)}::${sql.raw(type)}`
}

export function inputOf(algorithm: AnyAlgorithm, form: Form): Input {
  // The algorithm's own parameters ride along; it alone knows their names.
  const names = [...CALL_NUMBERS, ...algorithm.params] as CallNumber[]
  return form === 'one' ? oneCall(names) : manyCalls(names)
}

function oneCall(names: readonly CallNumber[]): Input {
  const calls: Calls = {
    prefix: param('prefix', 'text'),
    key: param('key', 'text'),
    numbers: forEach(names, (name) => param<number>(name, 'float8')),
    carried: {},
    from: () => calls,
  }
  return { cte: undefined, source: sql`(values (1)) as call`, calls }
}

function manyCalls(names: readonly CallNumber[]): Input {
  const { source, column } = batch(names)
  const cte = builder.$with('ratelimit_input').as((qb) =>
    qb
      .select({
        callPrefix: column('prefix').as('callPrefix'),
        callKey: column('key').as('callKey'),
        ...forEach(names, (name) => column<number>(name).as(name)),
      })
      .from(source)
      .orderBy(column('prefix'), column('key')),
  )
  const columnsFrom = (link: WithSubquery): Calls => {
    const { callPrefix, callKey } = columnsOf(link, ['callPrefix', 'callKey'])
    const numbers = columnsOf(link, names)
    const carried = { callPrefix, callKey, ...numbers }
    return { prefix: callPrefix, key: callKey, numbers, carried, from: columnsFrom }
  }
  return { cte, source: cte, calls: columnsFrom(cte) }
}

interface Batch {
  readonly source: SQL
  column<T = string>(name: string): SQL<T>
}

/**
 * Many calls come as columns, each an array written as text: drivers encode arrays in ways of their own, pg-proxy in none. JSON would
 * take Postgres several times as long to read.
 */
export function batch(numbers: readonly string[]): Batch {
  const columns = ['prefix', 'key', ...numbers]
  const arrays = columns.map(
    (name, i) => sql`${param(name, 'text')}::${sql.raw(i < 2 ? 'text[]' : 'float8[]')}`,
  )
  return {
    source: sql`unnest(${sql.join(arrays, sql`, `)}) as call (${sql.join(
      columns.map((name) => sql.identifier(name)),
      sql`, `,
    )})`,
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

/** https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO */
function arrayText(values: readonly (string | number | null)[]): string {
  const elements = values.map((value) =>
    typeof value === 'string' ? `"${value.replaceAll(/["\\]/g, '\\$&')}"` : (value ?? 'NULL'),
  )
  return `{${elements.join()}}`
}
