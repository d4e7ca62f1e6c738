import { entityKind, is, Placeholder, SQL } from 'drizzle-orm'
import { nameFor } from './naming.ts'

/** A statement whose text is fixed, waiting for its values. */
export interface Rendered {
  readonly sql: string
  /** The parameters in the order of their first appearance: `$1` is the first. */
  readonly names: readonly string[]
  /** The name under which a connection may keep it. */
  preparedName(): Promise<string>
}

/**
 * Renders a query once, so that a call pays for its values only; building costs Drizzle more than Postgres takes to run it.
 *
 * A placeholder that appears again becomes the number it was first given, so that each value is sent once.
 *
 * @example
 * `where prefix = $1 and key = $2 ... and prefix = $3` with the placeholders prefix, key, prefix becomes
 * `where prefix = $1 and key = $2 ... and prefix = $1`.
 */
export function render(query: { toSQL(): { sql: string; params: unknown[] } }): Rendered {
  const { sql, params } = query.toSQL()
  const names: string[] = []
  const numbered = sql.replaceAll(/\$(\d+)/g, (_, number) => {
    const param = params[Number(number) - 1]
    if (!is(param, Placeholder)) throw new Error('A rendered statement takes placeholders only.')
    // Public in 0.45, protected in 1.0, and there in both.
    const name = String(Reflect.get(param, 'name'))
    if (!names.includes(name)) names.push(name)
    return `$${names.indexOf(name) + 1}`
  })
  let preparedName: Promise<string> | undefined
  return { sql: numbered, names, preparedName: () => (preparedName ??= nameFor(numbered)) }
}

/** The values of a statement, by the names of its parameters. */
export type Values = Readonly<Record<string, string | number | null>>

/** The rendered statement with its values, ready for `db.execute`. */
export function bind(statement: Rendered, values: Values): SQL {
  return new BoundStatement(statement, paramsOf(statement, values))
}

/** A query that is written already: Drizzle takes longer to put the pieces together than Postgres to run them. */
class BoundStatement extends SQL {
  static override readonly [entityKind]: string = 'SQL'
  readonly #query: { sql: string; params: unknown[] }

  constructor({ sql }: Rendered, params: unknown[]) {
    super([])
    this.#query = { sql, params }
  }

  override toQuery(): { sql: string; params: unknown[] } {
    return this.#query
  }
}

/** The values in the order of the statement's parameters. */
export function paramsOf({ names }: Rendered, values: Values): (string | number | null)[] {
  return names.map((name) => valueFor(values, name))
}

function valueFor(values: Values, name: string) {
  const value = values[name]
  if (value === undefined) throw new Error(`The statement's parameter ${name} has no value.`)
  return value
}
