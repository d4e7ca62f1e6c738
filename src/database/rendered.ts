import { is, Param, Placeholder, SQL, StringChunk } from 'drizzle-orm'
import { nameFor } from './naming.ts'

/** A statement whose text is fixed, waiting for its values. */
export interface Rendered {
  /** The text between the parameters; one more than there are names. */
  readonly text: readonly string[]
  /** The parameters in the order of their first appearance: `$1` is the first. */
  readonly names: readonly string[]
  /** The text as it is sent. */
  readonly sql: string
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
  const text: string[] = []
  let current = ''
  // The pieces at odd places are the numbers of parameters.
  for (const [place, piece] of sql.split(/\$(\d+)/).entries()) {
    if (place % 2 === 0) {
      current += piece
      continue
    }
    const param = params[Number(piece) - 1]
    if (!is(param, Placeholder)) throw new Error('A rendered statement takes placeholders only.')
    // Public in 0.45, protected in 1.0, and there in both.
    const name = String(Reflect.get(param, 'name'))
    const known = names.indexOf(name)
    if (known >= 0) {
      current += `$${known + 1}`
      continue
    }
    names.push(name)
    text.push(current)
    current = ''
  }
  text.push(current)
  let name: Promise<string> | undefined
  const whole = text.map((piece, place) => (place === 0 ? piece : `$${place}${piece}`)).join('')
  return { text, names, sql: whole, preparedName: () => (name ??= nameFor(whole)) }
}

/** The values of a statement, by the names of its parameters. */
export type Values = Readonly<Record<string, string | number | null>>

/** The rendered statement with its values, ready for `db.execute`. */
export function bind(statement: Rendered, values: Values): SQL {
  const params = paramsOf(statement, values)
  return new SQL(
    statement.text.flatMap((piece, place) => {
      const chunk = new StringChunk(piece)
      return place < params.length ? [chunk, new Param(params[place])] : [chunk]
    }),
  )
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
