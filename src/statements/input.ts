import { type SQL, sql, type WithSubquery } from 'drizzle-orm'
import type { AnyAlgorithm, CommonParam, Expressions } from '../algorithms/algorithm.ts'
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
  const { source, text, number } = batch(names)
  const cte = builder.$with('ratelimit_input').as((qb) =>
    qb
      .select({
        callPrefix: text('prefix').as('callPrefix'),
        callKey: text('key').as('callKey'),
        ...forEach(names, (name) => number(name).as(name)),
      })
      .from(source)
      .orderBy(text('prefix'), text('key')),
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
  text(name: 'prefix' | 'key'): SQL<string>
  number(name: string): SQL<number>
}

/**
 * Many calls come as one JSON text: each driver encodes arrays in its own way, pg-proxy in none. To the driver it is a text, for
 * some encode what is declared as JSON once more.
 */
export function batch(numbers: readonly string[]): Batch {
  const columns = numbers.map((name) => sql`, ${sql.identifier(name)} float8`)
  return {
    source: sql`jsonb_to_recordset(${param('batch', 'text')}::jsonb) as call (prefix text, key text${sql.join(columns)})`,
    text: (name) => sql`call.${sql.identifier(name)}`,
    number: (name) => sql`call.${sql.identifier(name)}`,
  }
}
