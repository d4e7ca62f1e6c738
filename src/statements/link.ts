import { is, SQL, type WithSubquery } from 'drizzle-orm'
import { builder } from './builder.ts'
import { forEach } from './columns.ts'
import type { Calls } from './input.ts'

type Selected = Readonly<Record<string, SQL | SQL.Aliased>>

/** A link of the chain of CTEs: whose calls it is about, and what is known of each. */
export interface Link<Column extends string> {
  readonly cte: WithSubquery
  readonly calls: Calls
  readonly columns: Readonly<Record<Column, SQL.Aliased<number>>>
}

/** Where a link takes its columns from. */
type Source = Pick<Link<never>, 'cte' | 'calls'>

/**
 * Adds a link to the chain, worked out from the one before.
 *
 * Drizzle 0.45 writes an alias without its table, so no alias is the name of a column that is at hand in the same place; 1.0
 * writes it with the CTE that it is taken from, so a link hands on what later ones need.
 */
export function link<const Columns extends Selected>(
  name: string,
  before: Source,
  columns: Columns,
  beside?: WithSubquery,
): Link<keyof Columns & string> {
  const cte = builder.$with(`ratelimit_${name}`).as((qb) => {
    const query = qb.select({ ...before.calls.carried, ...aliased(columns) }).from(before.cte)
    return beside ? query.crossJoin(beside) : query
  })
  return linkOf(cte, before.calls, columns)
}

/** The link that a CTE is, which selects what the calls carry and these columns. */
export function linkOf<const Columns extends Selected>(
  cte: WithSubquery,
  calls: Calls,
  columns: Columns,
): Link<keyof Columns & string> {
  const names = Object.keys(columns) as (keyof Columns & string)[]
  return { cte, calls: calls.from(cte), columns: columnsOf(cte, names) }
}

/** The columns of a CTE that has them. */
export function columnsOf<Column extends string>(
  cte: WithSubquery,
  names: readonly Column[],
): Record<Column, SQL.Aliased<number>> {
  return forEach(names, (name) => {
    const column: unknown = Reflect.get(cte, name)
    if (!is(column, SQL.Aliased)) throw new Error(`The link has no column ${name}.`)
    return column as SQL.Aliased<number>
  })
}

/** Each column under its own name. */
export function aliased(columns: Selected): Record<string, SQL.Aliased> {
  return Object.fromEntries(
    Object.entries(columns).map(([name, column]) => [name, is(column, SQL) ? column.as(name) : column]),
  )
}
