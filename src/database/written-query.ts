import { entityKind, SQL } from 'drizzle-orm'

class WrittenQuery extends SQL {
  static override readonly [entityKind]: string = 'SQL'
  readonly #query: { sql: string; params: unknown[] }

  constructor(sql: string, params: unknown[]) {
    super([])
    this.#query = { sql, params }
  }

  override toQuery(): { sql: string; params: unknown[] } {
    return this.#query
  }
}

/**
 * A query that is written already: Drizzle takes longer to put the pieces together than Postgres to run them.
 */
export function writtenQuery(sql: string, params: unknown[]): SQL {
  return new WrittenQuery(sql, params)
}
