import { createRequire } from 'node:module'
import { join } from 'node:path'
import { PgDialect } from 'drizzle-orm/pg-core'
import type { Database } from '../kernel/database/database.ts'

const CONNECT_TIMEOUT_MS = 10_000

/** Far longer than the queries on the catalogs, which take milliseconds. */
const QUERY_TIMEOUT_MS = 30_000

export interface Connected {
  readonly db: Database
  end(): Promise<void>
}

type Query = (sql: string, params: unknown[]) => Promise<unknown>

/** The address of the database that a command was given, or that of the environment. */
export function urlIn(positionals: readonly string[], command: string): string {
  const [url = process.env['DATABASE_URL'], ...more] = positionals
  if (!url)
    throw new Error(`Which database? Run \`drizzle-ratelimit ${command} <url>\`, or set DATABASE_URL.`)
  if (more.length > 0) throw new Error(`\`drizzle-ratelimit ${command}\` takes one URL.`)
  return url
}

/** Connects with the driver of the project: `pg` or `postgres`. */
export function connect(url: string): Connected {
  checkUrl(url)
  const project = createRequire(join(process.cwd(), 'package.json'))
  const driver = ['pg', 'postgres'].find((name) => isInstalled(project, name))
  if (driver === 'pg') return byNodePostgres(project('pg'), url)
  if (driver === 'postgres') return byPostgresJs(project('postgres'), url)
  throw new Error('This command needs `pg` or `postgres`: run `npm install pg`.')
}

/** Refuses text that is not a URL. The error does not contain it, because it may have a password. */
function checkUrl(text: string): void {
  // With a socket, there is no host: `postgres://user:password@/name?host=/run/postgresql`.
  const withHost = text.replace('@/', '@socket/')
  const url = URL.canParse(withHost) ? new URL(withHost) : undefined
  // With a password like 1/2, the slash ends the host: the user is read as the host and 1 as its port.
  const isCut = url?.username === '' && `${url.pathname || url.search}${url.hash}`.includes('@')
  if (url && !isCut) return
  throw new Error(
    'The address of the database is not a URL. In a password, write / as %2F, ? as %3F, # as %23 and @ as %40.',
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

function byNodePostgres({ Client }: typeof import('pg'), url: string): Connected {
  let client: InstanceType<typeof Client> | undefined
  let isEnded = false
  const connected = async () => {
    const next = new Client({ connectionString: url, connectionTimeoutMillis: CONNECT_TIMEOUT_MS })
    // If the connection breaks, the running query rejects, and the next one connects again. Without a listener,
    // the process would end with code 1.
    next.on('error', () => {
      client = undefined
    })
    await next.connect()
    client = next
    // The user has stopped meanwhile. An open connection would keep the process alive.
    if (isEnded) await next.end()
    return next
  }
  return {
    db: databaseOf(async (sql, params) => (client ?? (await connected())).query(sql, params)),
    end: async () => {
      isEnded = true
      await client?.end()
    },
  }
}

function byPostgresJs(postgres: typeof import('postgres'), url: string): Connected {
  // If the connection broke while it fetches types, an unhandled rejection would end the process.
  const quiet = { fetch_types: false, onnotice: () => {} }
  const client = postgres(url, { max: 1, connect_timeout: CONNECT_TIMEOUT_MS / 1000, ...quiet })
  const db = databaseOf((sql, params) => client.unsafe(sql, params as never[]))
  return { db, end: () => client.end({ timeout: 1 }) }
}

function databaseOf(query: Query): Database {
  const dialect = new PgDialect()
  return {
    execute: (written) => {
      const { sql, params } = dialect.sqlToQuery(written)
      return orTimeout(query(sql, params))
    },
    transaction: () => Promise.reject(new Error('This connection only reads.')),
    refreshMaterializedView: undefined,
  }
}

/**
 * A timeout, because postgres.js never gives up a dead connection, and poolers may refuse `statement_timeout`.
 */
async function orTimeout<T>(answer: Promise<T>): Promise<T> {
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
