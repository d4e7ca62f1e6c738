import { type SQL, sql, type WithSubquery } from 'drizzle-orm'
import type { AnyAlgorithm, CommonParam } from '../algorithms/algorithm.ts'
import { builder } from './builder.ts'
import { forEach } from './columns.ts'

/** How many keys a statement is for. A single one is compared by equality: that plans cheaply, and a sharded Postgres can route it. */
export type Form = 'one' | 'many'

/** The numbers that come with every key: its place among those of the statement, an injected time or null, and what it takes. */
export type CallNumber = 'place' | 'clock' | 'rate' | 'calls' | CommonParam

const CALL_NUMBERS: readonly CallNumber[] = ['place', 'clock', 'rate', 'calls', 'limit', 'periodMs']

/** Columns of a CTE. */
export type Aliases<Name extends string> = Record<Name, SQL.Aliased<number>>

/** The calls, a row a key: whose, its rate, how many of them, the algorithm's parameters. */
export interface Input {
  readonly cte: WithSubquery
  readonly callPrefix: SQL.Aliased<string>
  readonly callKey: SQL.Aliased<string>
  readonly numbers: Aliases<CallNumber>
}

/** A value that is sent with each run. */
export function param<T>(name: string, type: 'text' | 'float8'): SQL<T> {
  return sql`${sql.placeholder(name)}::${sql.raw(type)}`
}

export function inputOf(algorithm: AnyAlgorithm, form: Form): Input {
  // The algorithm's own parameters ride along; it alone knows their names.
  const names = [...CALL_NUMBERS, ...algorithm.params] as CallNumber[]
  const { source, text, number } = form === 'one' ? oneCall() : manyCalls(names)
  const input = builder.$with('ratelimit_input').as((qb) =>
    qb
      .select({
        callPrefix: text('prefix').as('callPrefix'),
        callKey: text('key').as('callKey'),
        numbers: forEach(names, (name) => number(name).as(name)),
      })
      .from(source)
      .orderBy(...(form === 'many' ? [text('prefix'), text('key')] : [])),
  )
  return { cte: input, callPrefix: input.callPrefix, callKey: input.callKey, numbers: input.numbers }
}

interface Calls {
  readonly source: SQL
  text(name: 'prefix' | 'key'): SQL<string>
  number(name: string): SQL<number>
}

function oneCall(): Calls {
  return {
    source: sql`(values (1)) as call`,
    text: (name) => param(name, 'text'),
    number: (name) => param(name, 'float8'),
  }
}

/**
 * Many calls come as one JSON text: each driver encodes arrays in its own way, pg-proxy in none. To the driver it is a text, for
 * some encode what is declared as JSON once more.
 */
export function manyCalls(numbers: readonly string[]): Calls {
  const columns = numbers.map((name) => sql`, ${sql.identifier(name)} float8`)
  return {
    source: sql`jsonb_to_recordset(${param('batch', 'text')}::jsonb) as call (prefix text, key text${sql.join(columns)})`,
    text: (name) => sql`call.${sql.identifier(name)}`,
    number: (name) => sql`call.${sql.identifier(name)}`,
  }
}
