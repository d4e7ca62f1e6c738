import type { LibSQLDatabase } from 'drizzle-orm/libsql'
import type { MySql2Database } from 'drizzle-orm/mysql2'
import type { NeonHttpDatabase } from 'drizzle-orm/neon-http'
import type { NeonDatabase } from 'drizzle-orm/neon-serverless'
import type { NodePgDatabase } from 'drizzle-orm/node-postgres'
import type { PgRemoteDatabase } from 'drizzle-orm/pg-proxy'
import type { PgliteDatabase } from 'drizzle-orm/pglite'
import type { PostgresJsDatabase } from 'drizzle-orm/postgres-js'
import type { VercelPgDatabase } from 'drizzle-orm/vercel-postgres'
import { Ratelimit, rateLimitEphemeral, rateLimitTables } from 'drizzle-ratelimit'

// Compiled against the sources and the emitted declarations, with Drizzle 0.45 and 1.0: see
// test/distribution/tools/types.test.ts.

const limiter = Ratelimit.fixedWindow(5, '1m')

declare const drivers: {
  nodePostgres: NodePgDatabase
  postgresJs: PostgresJsDatabase
  pglite: PgliteDatabase
  neonHttp: NeonHttpDatabase
  neonServerless: NeonDatabase
  vercel: VercelPgDatabase
  proxy: PgRemoteDatabase
}

export async function accepted(): Promise<void> {
  const { nodePostgres, postgresJs, pglite, neonHttp, neonServerless, vercel, proxy } = drivers
  for (const db of [nodePostgres, postgresJs, pglite, neonHttp, neonServerless, vercel, proxy]) {
    new Ratelimit({ db, limiter, prefix: 'p' })
  }
  const ratelimit = new Ratelimit({ db: nodePostgres, limiter, prefix: 'p' })
  await nodePostgres.transaction((tx) => ratelimit.limit('key', { tx }))
  await postgresJs.transaction((tx) => ratelimit.limit('key', { tx }))
  await pglite.transaction((tx) => ratelimit.limit('key', { tx }))
  await neonHttp.transaction((tx) => ratelimit.limit('key', { tx }))
  await neonServerless.transaction((tx) => ratelimit.limit('key', { tx }))
  await vercel.transaction((tx) => ratelimit.limit('key', { tx }))
  await proxy.transaction((tx) => ratelimit.limit('key', { tx }))
  await nodePostgres.transaction((tx) => tx.transaction((nested) => ratelimit.limit('key', { tx: nested })))
}

declare const others: { mysql: MySql2Database; sqlite: LibSQLDatabase }

// @ts-expect-error MySQL
new Ratelimit({ db: others.mysql, limiter, prefix: 'p' })
// @ts-expect-error SQLite
new Ratelimit({ db: others.sqlite, limiter, prefix: 'p' })
// @ts-expect-error no database
new Ratelimit({ db: {}, limiter, prefix: 'p' })

/** The tables are Drizzle's, with typed rows, whatever version they were built with. */
export async function selected(): Promise<void> {
  const [row] = await drivers.nodePostgres.select().from(rateLimitEphemeral)
  if (!row) return
  const { key, count, tokens, windowStart, expiresAt } = row
  const typed: [string, number | null, number | null, Date | null, Date] = [
    key,
    count,
    tokens,
    windowStart,
    expiresAt,
  ]
  void typed
  // @ts-expect-error no such column
  row.limit
  // @ts-expect-error not a number
  const wrong: number = key
  void wrong
  await drivers.nodePostgres.delete(rateLimitTables({ ephemeral: 'a', durable: 'b' }).durable)
}
