import { randomUUID } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { PGlite } from '@electric-sql/pglite'
import type { Cache } from 'drizzle-orm/cache/core'
import { drizzle as drizzleNodePostgres } from 'drizzle-orm/node-postgres'
import type { PgDatabase, PgQueryResultHKT } from 'drizzle-orm/pg-core'
import { drizzle as drizzlePglite } from 'drizzle-orm/pglite'
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, inject } from 'vitest'

/** A Drizzle database of the driver under test. */
export type Db = PgDatabase<PgQueryResultHKT, Record<string, never>>

export interface TestDatabase {
  readonly db: Db
  /** Where it is, if there is a server. */
  readonly url: string
  /** Rows of a query, past Drizzle. */
  rows(query: string, params?: readonly unknown[]): Promise<Record<string, unknown>[]>
  /** Another Drizzle over the same client. */
  withCache(cache: Cache): Db
  /** Runs a script of several statements. */
  script(sql: string): Promise<void>
  /** Another pool of the driver on the same database, where there is a server. */
  connect(max: number): { db: Db }
  /** A connection past Drizzle, where there is a server. */
  client(): Promise<pg.Client>
  close(): Promise<void>
}

/** Whether the driver speaks to a server, on which there can be more than one connection. */
export function hasServer(): boolean {
  return inject('driver') !== 'pglite'
}

/** A database without tables; on a server with the given options of `create database`. */
export async function emptyDatabase(options = ''): Promise<TestDatabase> {
  return hasServer() ? emptyServerDatabase(inject('serverUrl'), options) : emptyPglite()
}

/** The ones that no file uses now. They are used again, because starting one takes longer than most files. */
const idle: PGlite[] = []

const EVERYTHING = `select nspname as name from pg_namespace
  where nspname !~ '^pg_' and nspname <> 'information_schema'`

/** As it was when it was started. */
async function emptied(client: PGlite): Promise<PGlite> {
  await client.exec('rollback')
  await client.exec('discard all')
  const { rows } = await client.query<{ name: string }>(EVERYTHING)
  for (const { name } of rows) await client.exec(`drop schema "${name.replaceAll('"', '""')}" cascade`)
  await client.exec('create schema public')
  return client
}

async function emptyPglite(): Promise<TestDatabase> {
  const used = idle.pop()
  const client = used ? await emptied(used) : await PGlite.create()
  const noServer = () => {
    throw new Error('PGlite has one connection')
  }
  return {
    db: drizzlePglite({ client }),
    url: '',
    withCache: (cache) => drizzlePglite({ client, cache }),
    rows: async (query, params = []) =>
      (await client.query<Record<string, unknown>>(query, [...params])).rows,
    script: async (sql) => void (await client.exec(sql)),
    connect: noServer,
    client: noServer,
    close: async () => void idle.push(client),
  }
}

async function emptyServerDatabase(serverUrl: string, options: string): Promise<TestDatabase> {
  const name = await createDatabase(serverUrl, options)
  return openDatabase(serverUrl, name, () => drop(serverUrl, name))
}

async function createDatabase(serverUrl: string, options: string): Promise<string> {
  const name = `test_${randomUUID().replaceAll('-', '')}`
  await onServer(serverUrl, `create database ${name} ${options}`)
  return name
}

/** @param leave What becomes of it when its connections are closed. */
async function openDatabase(
  serverUrl: string,
  name: string,
  leave: () => Promise<void>,
): Promise<TestDatabase> {
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  const ends: (() => Promise<void>)[] = []
  const connect = (max: number, cache?: Cache) => {
    const { db, end } = open(url.href, max, cache)
    ends.push(end)
    return { db }
  }
  const client = async () => {
    const opened = new pg.Client({ connectionString: url.href })
    ends.push(() => opened.end())
    await opened.connect()
    return opened
  }
  const beside = await client()
  return {
    db: connect(4).db,
    url: url.href,
    withCache: (cache) => connect(2, cache).db,
    rows: async (query, params = []) => (await beside.query(query, [...params])).rows,
    script: async (sql) => void (await beside.query(sql)),
    connect,
    client,
    close: async () => {
      await Promise.all(ends.map((end) => end()))
      await leave()
    },
  }
}

/** Without time-outs of their own: tests replace the timers. */
export function open(url: string, max: number, cache?: Cache): { db: Db; end: () => Promise<void> } {
  const config = cache ? { cache } : {}
  if (inject('driver') === 'node-postgres') {
    const pool = new pg.Pool({ connectionString: url, max, idleTimeoutMillis: 0 })
    // If an idle connection breaks, the next query fails.
    pool.on('error', () => {})
    return { db: drizzleNodePostgres({ client: pool, ...config }), end: () => pool.end() }
  }
  const client = postgres(url, {
    max,
    idle_timeout: 0,
    max_lifetime: null,
    connect_timeout: 0,
    onnotice: () => {},
  })
  return { db: drizzlePostgresJs({ client, ...config }), end: () => client.end({ timeout: 5 }) }
}

/**
 * A pool has ended before the server knows of it. So Postgres is asked to wait until it does: if it broke those
 * connections, their clients would throw without a listener. Force ends what a test has left open.
 */
async function drop(serverUrl: string, name: string): Promise<void> {
  await onServer(serverUrl, `drop database ${name}`).catch((error: unknown) => {
    if ((error as pg.DatabaseError).code !== OBJECT_IN_USE) throw error
    return onServer(serverUrl, `drop database ${name} with (force)`)
  })
}

const OBJECT_IN_USE = '55006'

async function onServer(serverUrl: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl })
  await client.connect()
  await client.query(sql).finally(() => client.end())
}

/** Applies drizzle/ file by file, because the migrators of Drizzle 0.45 and 1.0 want different folders. */
export async function migrate(database: TestDatabase): Promise<void> {
  for (const file of (await readdir('drizzle')).filter((name) => name.endsWith('.sql')).sort()) {
    await database.script(await readFile(`drizzle/${file}`, 'utf8'))
  }
}

/** As the migrations made them, and no file uses them. Making and dropping one takes longer than most files. */
const migrated: { readonly name: string; readonly catalogs: string }[] = []

async function migratedOnServer(serverUrl: string): Promise<TestDatabase> {
  const used = migrated.pop()
  const name = used?.name ?? (await createDatabase(serverUrl, ''))
  let { catalogs } = used ?? { catalogs: '' }
  const database = await openDatabase(serverUrl, name, async () => {
    const left = await withoutRows(database.url, catalogs)
    if (left) migrated.push({ name, catalogs: left })
    else await drop(serverUrl, name)
  })
  if (used) return database
  await migrate(database)
  catalogs = await catalogsOf(database)
  return database
}

/** Whatever a file may have changed, besides rows and the settings of its sessions. */
const CATALOGS = [
  ...['class', 'type', 'proc', 'constraint', 'trigger', 'policy', 'attrdef', 'publication', 'extension'].map(
    (name) => `select pg_${name}::text from pg_${name} where oid >= 16384`,
  ),
  ...['namespace', 'event_trigger', 'default_acl', 'db_role_setting'].map(
    (name) => `select pg_${name}::text from pg_${name}`,
  ),
  'select pg_attribute::text from pg_attribute where attrelid >= 16384',
  'select pg_index::text from pg_index where indexrelid >= 16384',
  'select (datdba, datacl, datconnlimit)::text from pg_database where datname = current_database()',
].join(' union all ')

async function catalogsOf({ rows }: Pick<TestDatabase, 'rows'>): Promise<string> {
  const [found] = await rows(
    `select md5(string_agg(line, '' order by line)) as md5 from (${CATALOGS}) as all_of (line)`,
  )
  return String(found?.['md5'])
}

const OTHERS = 'select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()'

/** Empties the tables. The result is what the catalogs are then, if nothing but rows was changed. */
async function withoutRows(url: string, catalogs: string): Promise<string | undefined> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const rows = async (query: string) => (await client.query(query)).rows
  try {
    // Clients have closed their connections before the server knows of it.
    for (let looks = 0; (await rows(OTHERS)).length > 0; looks++) if (looks > 100) return undefined
    if ((await catalogsOf({ rows })) !== catalogs) return undefined
    await client.query('truncate rate_limit_ephemeral, rate_limit_durable')
    await client.query('select pg_stat_reset()')
    return await catalogsOf({ rows })
  } finally {
    await client.end()
  }
}

/** A migrated database for the tests of a file; keys and prefixes keep them apart. */
export function useDatabase(): TestDatabase {
  const opened = {} as TestDatabase
  beforeAll(async () => {
    if (inject('sharesDatabases'))
      return void Object.assign(opened, await migratedOnServer(inject('serverUrl')))
    Object.assign(opened, await emptyDatabase())
    await migrate(opened)
  })
  afterAll(() => opened.close())
  return opened
}
