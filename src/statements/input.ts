import { type SQL, sql, type WithSubquery } from 'drizzle-orm'
import type { AnyAlgorithm, CommonParam } from '../algorithms/algorithm.ts'
import { builder } from './builder.ts'
import { forEach } from './columns.ts'

/** How many keys a statement is for. A single one is compared by equality: that plans cheaply, and a sharded Postgres can route it. */
export type Form = 'one' | 'many'

/** The numbers that come with every key. */
export type CallNumber = 'rate' | 'calls' | CommonParam

const CALL_NUMBERS: readonly CallNumber[] = ['rate', 'calls', 'limit', 'periodMs']

/** Columns of a CTE. */
export type Aliases<Name extends string> = Record<Name, SQL.Aliased<number>>

/** The calls, a row a key: its rate, how many of them, the algorithm's parameters. */
export interface Input {
  readonly cte: WithSubquery
  readonly key: SQL.Aliased<string>
  readonly numbers: Aliases<CallNumber>
}

/** A value that is sent with each run. */
export function param<T>(name: string, type: 'text' | 'float8' | 'jsonb'): SQL<T> {
  return sql`${sql.placeholder(name)}::${sql.raw(type)}`
}

export function inputOf(algorithm: AnyAlgorithm, form: Form): Input {
  // The algorithm's own parameters ride along; it alone knows their names.
  const names = [...CALL_NUMBERS, ...algorithm.params] as CallNumber[]
  const { source, key, number } = form === 'one' ? oneCall() : manyCalls(names)
  const cte = builder
    .$with('input')
    .as((qb) =>
      qb
        .select({ callKey: key.as('callKey'), numbers: forEach(names, (name) => number(name).as(name)) })
        .from(source),
    )
  return { cte, key: cte.callKey, numbers: cte.numbers }
}

interface Calls {
  readonly source: SQL
  readonly key: SQL<string>
  number(name: string): SQL<number>
}

function oneCall(): Calls {
  return {
    source: sql`(values (1)) as call`,
    key: param('key', 'text'),
    number: (name) => param(name, 'float8'),
  }
}

/** Many calls come as one JSON text: each driver encodes arrays in its own way, pg-proxy in none. */
function manyCalls(names: readonly string[]): Calls {
  const columns = names.map((name) => sql`${sql.identifier(name)} float8`)
  return {
    source: sql`jsonb_to_recordset(${param('batch', 'jsonb')}) as call (key text, ${sql.join(columns, sql`, `)})`,
    key: sql`call.key`,
    number: (name) => sql`call.${sql.identifier(name)}`,
  }
}
