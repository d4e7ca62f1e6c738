import { createRequire } from 'node:module'
import { join } from 'node:path'
import { PgDialect } from 'drizzle-orm/pg-core'
import type { Database } from '../database/database.ts'

const CONNECT_TIMEOUT_MS = 10_000

/** What is asked of the catalogs takes milliseconds. */
const QUERY_TIMEOUT_MS = 30_000

export interface Connected {
  readonly db: Database
  end(): Promise<void>
}

type Query = (sql: string, params: unknown[]) => Promise<unknown>

/** Connects by the driver that the project has: `pg` or `postgres`. */
export async function connect(url: string): Promise<Connected> {
  checkUrl(url)
  const project = createRequire(join(process.cwd(), 'package.json'))
  const driver = ['pg', 'postgres'].find((name) => isInstalled(project, name))
  if (driver === 'pg') return byNodePostgres(project('pg'), url)
  if (driver === 'postgres') return byPostgresJs(project('postgres'), url)
  throw new Error('To look at a database, install `pg` or `postgres` in the project.')
}

/** The URL is not in the error: it may hold a password. */
function checkUrl(text: string): void {
  const url = URL.canParse(text) ? new URL(text) : undefined
  // A password like 1/2 ends the host, as if the user were the host and 1 its port.
  const isCut = url?.username === '' && `${url.pathname}${url.hash}`.includes('@')
  if (url && !isCut) return
  throw new Error(
    'What names the database is not a URL. In a password, write / as %2F, ? as %3F, # as %23 and @ as %40.',
  )
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
      return inTime(query(sql, params))
    },
    transaction: () => Promise.reject(new Error('This connection only reads.')),
    refreshMaterializedView: undefined,
  }
}

/** postgres.js never gives up a silent connection, and poolers may refuse to set `statement_timeout`. */
async function inTime<T>(answer: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const silence = new Promise<never>((_, reject) => {
    const seconds = QUERY_TIMEOUT_MS / 1000
    const fail = () => reject(new Error(`The database has not answered for ${seconds} seconds.`))
    timer = setTimeout(fail, QUERY_TIMEOUT_MS)
  })
  try {
    return await Promise.race([answer, silence])
  } finally {
    clearTimeout(timer)
  }
}
