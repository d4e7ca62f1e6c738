import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { beforeAll } from 'vitest'
import { emptyDatabase, migrate, type TestDatabase } from '../../support/databases.ts'

interface Opened extends Pick<TestDatabase, 'client'> {
  readonly pool: pg.Pool
  readonly db: NodePgDatabase
}

/** A migrated database and a pool of ten connections, for the tests of a file. */
export function usePool(): Opened {
  const opened = {} as Opened
  beforeAll(async () => {
    const database = await emptyDatabase()
    await migrate(database)
    const pool = new pg.Pool({ connectionString: database.url, max: 10 })
    pool.on('error', () => {})
    Object.assign(opened, { client: database.client, pool, db: drizzle({ client: pool }) })
    return async () => {
      await pool.end()
      await database.close()
    }
  })
  return opened
}
