import { createRequire } from 'node:module'
import { join } from 'node:path'
import { PgDialect } from 'drizzle-orm/pg-core'
import type { Database } from '../database/database.ts'

const CONNECT_TIMEOUT_MS = 10_000

export interface Connected {
  readonly db: Database
  end(): Promise<void>
}

type Query = (sql: string, params: unknown[]) => Promise<unknown>

/** Connects by the driver that the project has: `pg` or `postgres`. */
export async function connect(url: string): Promise<Connected> {
  // The URL is not in the error: it may hold a password.
  if (!URL.canParse(url)) throw new Error('The URL of the database is not a URL.')
  const project = createRequire(join(process.cwd(), 'package.json'))
  const driver = ['pg', 'postgres'].find((name) => isInstalled(project, name))
  if (driver === 'pg') return byNodePostgres(project('pg'), url)
  if (driver === 'postgres') return byPostgresJs(project('postgres'), url)
  throw new Error('To look at a database, install `pg` or `postgres` in the project.')
}

function isInstalled(project: NodeJS.Require, name: string): boolean {
  try {
    project.resolve(name)
    return true
  } catch {
    return false
  }
}

async function byNodePostgres({ Client }: typeof import('pg'), url: string): Promise<Connected> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: CONNECT_TIMEOUT_MS })
  // Of a connection that breaks, the query that runs tells. Nobody listening would end the process with 1.
  client.on('error', () => {})
  await client.connect()
  return { db: databaseOf((sql, params) => client.query(sql, params)), end: () => client.end() }
}

async function byPostgresJs(postgres: typeof import('postgres'), url: string): Promise<Connected> {
  const client = postgres(url, { max: 1, connect_timeout: CONNECT_TIMEOUT_MS / 1000, onnotice: () => {} })
  const db = databaseOf((sql, params) => client.unsafe(sql, params as never[]))
  return { db, end: () => client.end({ timeout: 1 }) }
}

function databaseOf(query: Query): Database {
  const dialect = new PgDialect()
  return {
    execute: (written) => {
      const { sql, params } = dialect.sqlToQuery(written)
      return query(sql, params)
    },
    transaction: () => Promise.reject(new Error('This connection only reads.')),
    refreshMaterializedView: undefined,
  }
}
