import { randomUUID } from 'node:crypto'
import { PGlite } from '@electric-sql/pglite'
import { drizzle as drizzleNodePostgres } from 'drizzle-orm/node-postgres'
import { migrate as migrateNodePostgres } from 'drizzle-orm/node-postgres/migrator'
import { drizzle as drizzlePglite } from 'drizzle-orm/pglite'
import { migrate as migratePglite } from 'drizzle-orm/pglite/migrator'
import pg from 'pg'
import { afterAll, beforeAll, inject } from 'vitest'

const MIGRATIONS = { migrationsFolder: 'drizzle' }

/** A Drizzle database of the driver under test, as the tests use it. */
export type Db = ReturnType<typeof drizzleNodePostgres> | ReturnType<typeof drizzlePglite>

export interface TestDatabase {
  readonly db: Db
  /** Rows of a query, past the limiter. */
  rows(query: string): Promise<Record<string, unknown>[]>
  /** Runs a script of several statements. */
  script(sql: string): Promise<void>
  migrate(): Promise<void>
  close(): Promise<void>
  /** Another pool on the same database, where there is a server. */
  connect(max: number): { db: ReturnType<typeof drizzleNodePostgres>; pool: pg.Pool }
}

/** A database without tables. */
export async function emptyDatabase(): Promise<TestDatabase> {
  return inject('driver') === 'pglite' ? emptyPglite() : emptyServerDatabase(inject('serverUrl'))
}

async function emptyPglite(): Promise<TestDatabase> {
  const client = await PGlite.create()
  const db = drizzlePglite(client)
  return {
    db,
    rows: async (query) => (await client.query<Record<string, unknown>>(query)).rows,
    script: async (sql) => void (await client.exec(sql)),
    migrate: () => migratePglite(db, MIGRATIONS),
    close: () => client.close(),
    connect: () => {
      throw new Error('PGlite has one connection')
    },
  }
}

async function emptyServerDatabase(serverUrl: string): Promise<TestDatabase> {
  const name = `test_${randomUUID().replaceAll('-', '')}`
  await onServer(serverUrl, `create database ${name}`)
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  const pools: pg.Pool[] = []
  const connect = (max: number) => {
    // Without an idle timeout the pool sets no timers, which tests may have replaced.
    const pool = new pg.Pool({ connectionString: url.href, max, idleTimeoutMillis: 0 })
    pools.push(pool)
    return { pool, db: drizzleNodePostgres(pool) }
  }
  const { pool, db } = connect(4)
  return {
    db,
    rows: async (query) => (await pool.query(query)).rows,
    script: async (sql) => void (await pool.query(sql)),
    migrate: () => migrateNodePostgres(db, MIGRATIONS),
    connect,
    close: async () => {
      await Promise.all(pools.map((each) => each.end()))
      await onServer(serverUrl, `drop database ${name} with (force)`)
    },
  }
}

async function onServer(serverUrl: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl })
  await client.connect()
  await client.query(sql).finally(() => client.end())
}

/** A migrated database for the tests of a file; keys and prefixes keep them apart. */
export function useDatabase(): TestDatabase {
  const opened = {} as TestDatabase
  beforeAll(async () => {
    Object.assign(opened, await emptyDatabase())
    await opened.migrate()
  })
  afterAll(() => opened.close())
  return opened
}
