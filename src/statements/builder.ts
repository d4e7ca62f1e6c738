import { type SQL, sql } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { drizzle } from 'drizzle-orm/pg-proxy'
import { type Statement, statement } from '../database/statement.ts'

/** Drizzle's query builder without a database. It builds and renders statements, and does not run them. */
export const builder: ReturnType<typeof drizzle> = /* @__PURE__ */ drizzle(() =>
  Promise.reject(new Error('The statement builder has no database.')),
)

const dialect: PgDialect = /* @__PURE__ */ new PgDialect()

/** The parameters of a statement, numbered in the order of their first use, so that each value is sent once. */
export class Parameters {
  readonly #names: string[]
  readonly #scope: string
  readonly #columns: ReadonlySet<string>

  /** @param columns The parameters that are columns, so that each row of the query has its own values. */
  constructor(columns: Iterable<string> = [], names: string[] = [], scope = '') {
    this.#columns = new Set(columns)
    this.#names = names
    this.#scope = scope
  }

  /** Parameters of the same statement whose names begin with the scope, for one of several rows. */
  scoped(scope: string, columns: Iterable<string> = []): Parameters {
    return new Parameters(columns, this.#names, scope)
  }

  text(parameter: string): SQL<string> {
    if (this.#columns.has(parameter)) return sql`${name(this.#scope + parameter)}`
    return sql.raw(`${this.#place(parameter)}::text`) as SQL<string>
  }

  integer(name: string): SQL<number> {
    return sql.raw(`${this.#place(name)}::integer`) as SQL<number>
  }

  number(parameter: string): SQL<number> {
    if (this.#columns.has(parameter)) return name(this.#scope + parameter)
    return sql.raw(`${this.#place(parameter)}::float8`) as SQL<number>
  }

  /**
   * Many values as one text, because drivers encode arrays in different ways, and pg-proxy not at all.
   *
   * The `select` hides the array from the planner. Otherwise a short array would look cheap, and the planner
   * would plan each short batch again.
   * https://www.postgresql.org/docs/current/sql-prepare.html#SQL-PREPARE-NOTES
   */
  array(name: string, type: 'text' | 'float8'): SQL {
    return sql.raw(`(select ${this.#place(name)}::text::${type}[])`)
  }

  #place(unscoped: string): string {
    const name = this.#scope + unscoped
    const known = this.#names.indexOf(name)
    return `$${known < 0 ? this.#names.push(name) : known + 1}`
  }

  /** The finished statement. Drizzle's own parameters are written into the text. */
  render(query: SQL): Statement {
    return statement(dialect.sqlToQuery(sql`${query}`.inlineParams()).sql, this.#names)
  }
}

/** A name in SQL: of a column, a CTE or a level. `of` is the table or alias of a column. */
export function name(text: string, of?: string): SQL<number> {
  return of === undefined ? sql`${sql.identifier(text)}` : sql`${sql.identifier(of)}.${sql.identifier(text)}`
}
