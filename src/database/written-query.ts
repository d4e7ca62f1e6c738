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

/** A query that is rendered already, because rendering takes Drizzle longer than running takes Postgres. */
export function writtenQuery(sql: string, params: unknown[]): SQL {
  return new WrittenQuery(sql, params)
}
