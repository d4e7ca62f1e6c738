import { Kysely, PostgresDialect, type PostgresPool } from 'kysely'
import type { TestDatabase } from './databases.ts'

/** A Kysely whose pool is the one connection past Drizzle. */
export function kyselyOf<T = object>(database: Pick<TestDatabase, 'rows'>): Kysely<T> {
  const query = async (sql: unknown, params?: readonly unknown[]) => {
    const rows = await database.rows(String(sql), params)
    return { command: 'SELECT' as const, rowCount: rows.length, rows }
  }
  const client = { query, release: () => {} } as unknown as Awaited<ReturnType<PostgresPool['connect']>>
  return new Kysely({
    dialect: new PostgresDialect({ pool: { connect: async () => client, end: async () => {} } }),
  })
}
