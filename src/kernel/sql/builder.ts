import { and, eq, type SQL, type SQLWrapper, sql } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { drizzle } from 'drizzle-orm/pg-proxy'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../database/statement.ts'

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
  readonly #link: string | undefined

  /** @param columns The parameters that are columns, so that each row of the query has its own values. */
  constructor(columns: Iterable<string> = [], names: string[] = [], scope = '', link?: string) {
    this.#columns = new Set(columns)
    this.#names = names
    this.#scope = scope
    this.#link = link
  }

  /** Parameters of the same statement whose names begin with the scope, for one of several rows. */
  scoped(scope: string, columns: Iterable<string> = []): Parameters {
    return new Parameters(columns, this.#names, scope)
  }

  /** The same parameters, for a query that also reads a table, which may have columns of these names. */
  inLink(alias: string): Parameters {
    return new Parameters(this.#columns, this.#names, this.#scope, alias)
  }

  isColumn(parameter: string): boolean {
    return this.#columns.has(parameter)
  }

  text(parameter: string): SQL<string> {
    if (this.isColumn(parameter)) return sql`${name(this.#scope + parameter, this.#link)}`
    return sql.raw(`${this.#place(parameter)}::text`) as SQL<string>
  }

  integer(name: string): SQL<number> {
    return sql.raw(`${this.#place(name)}::integer`) as SQL<number>
  }

  number(parameter: string): SQL<number> {
    if (this.isColumn(parameter)) return name(this.#scope + parameter, this.#link)
    return sql.raw(`${this.#place(parameter)}::float8`) as SQL<number>
  }

  /**
   * Many values as one text, because drivers encode arrays in different ways, and pg-proxy not at all.
   *
   * The `select` hides the array from the planner. Otherwise a short array would look cheap, and the planner
   * would plan each short batch again.
   * https://www.postgresql.org/docs/current/sql-prepare.html#SQL-PREPARE-NOTES
   *
   * @param isShown Whether the planner sees the values, so that Citus finds their shard.
   */
  array(name: string, type: 'text' | 'float8', isShown = false): SQL {
    const place = this.#place(name)
    return sql.raw(isShown ? `${place}::${type}[]` : `(select ${place}::text::${type}[])`)
  }

  #place(unscoped: string): string {
    const name = this.#scope + unscoped
    const known = this.#names.indexOf(name)
    return `$${known < 0 ? this.#names.push(name) : known + 1}`
  }

  /** The finished statement. Drizzle's own parameters are written into the text. */
  render(query: SQL): Statement {
    return { sql: dialect.sqlToQuery(sql`${query}`.inlineParams()).sql, names: this.#names, named: new Map() }
  }
}

/** A name in SQL: of a column, a CTE or a level. `of` is the table or alias of a column. */
export function name(text: string, of?: string): SQL<number> {
  return of === undefined ? sql`${sql.identifier(text)}` : sql`${sql.identifier(of)}.${sql.identifier(text)}`
}

export function columnList(columns: readonly string[], of?: string): SQL {
  return sql.join(
    columns.map((column) => name(column, of)),
    sql`, `,
  )
}

/** Whether a row of the table is the one with the prefix and the key. Default: the key is a parameter too. */
export function isTheRow(table: RateLimitTable, parameters: Parameters, key?: SQL): SQL | undefined {
  return and(eq(table.prefix, parameters.text('prefix')), eq(table.key, key ?? parameters.text('key')))
}

/**
 * Whether a row of the table is the one with the prefix and the key that a link has decided.
 *
 * The prefix looks as if it came from the link, too. If the planner knew it, it would also consider to read all
 * rows of the prefix for each key, by the index for cleanup. In a table that was never analyzed, these seem to
 * be a few.
 */
export function isDecidedRow(table: RateLimitTable, parameters: Parameters, key: SQL): SQL | undefined {
  const prefix = sql`case when ${key} is not null then ${parameters.text('prefix')} end`
  return and(eq(table.prefix, prefix), eq(table.key, key))
}

/** A query of a statement's `with` clause. */
export interface Link {
  readonly alias: string
  readonly query: SQL
}

/**
 * Makes a link. Its name begins with `ratelimit_`, because a link with a table's name would hide the table.
 *
 * Postgres evaluates each link once, because a link locks, writes, reads the clock or is used twice.
 * https://www.postgresql.org/docs/current/queries-with.html#QUERIES-WITH-CTE-MATERIALIZATION
 */
export function link(alias: string, query: SQLWrapper): Link {
  return { alias, query: query.getSQL() }
}

/** A statement made of links. Each link may use those before it. */
export function chain(links: readonly Link[], last: SQL): SQL {
  if (links.length === 0) return last
  const queries = links.map(({ alias, query }) => sql`${name(alias)} as (${query})`)
  return sql`with ${sql.join(queries, sql`, `)} ${last}`
}
