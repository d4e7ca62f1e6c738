import { randomUUID } from 'node:crypto'
import { drizzle } from 'drizzle-orm/node-postgres'
import { pgSchema } from 'drizzle-orm/pg-core'
import { citus } from 'drizzle-ratelimit/citus'
import pg from 'pg'
import { afterAll, beforeAll } from 'vitest'
import { type RateLimitTables, rateLimitTables } from '../../schema/index.ts'
import { type Layer, storageSql, tableSql } from '../../src/index.ts'

export const CITUS_URL: string | undefined = process.env['CITUS_URL']
/** The workers, which are entry nodes too. */
export const CITUS_WORKERS: readonly string[] = process.env['CITUS_WORKERS']?.split(',') ?? []
/** A plain server, to compare with. */
export const CITUS_PLAIN: string | undefined = process.env['CITUS_PLAIN']

/** How the tables are stored: over shards by `key`, whole on one shard, or in a Postgres without Citus. */
export type Layout = number | 'one shard' | 'plain'

export interface Laid {
  readonly tables: RateLimitTables
  /** With the store of Citus, if the tables are over shards. */
  readonly use: readonly Layer[]
  /** The Postgres schema of the tables. */
  readonly name: string
  /** A database by way of a server. Default: the coordinator. */
  at(url?: string): ReturnType<typeof drizzle> & { $client: pg.Pool }
  /** Rows of a query on a server. */
  rows(query: string, url?: string): Promise<Record<string, unknown>[]>
}

function urlOf(layout: Layout): string {
  return String(layout === 'plain' ? CITUS_PLAIN : CITUS_URL)
}

/** New tables in a Postgres schema of their own. */
export function useLayout(layout: Layout): Laid {
  const name = `t_${randomUUID().replaceAll('-', '')}`
  const tables = rateLimitTables({ schema: pgSchema(name) })
  const pools: pg.Pool[] = []
  const at = (url = urlOf(layout)) => {
    const pool = new pg.Pool({ connectionString: url, max: 8 })
    pool.on('error', () => {})
    pools.push(pool)
    return drizzle({ client: pool })
  }
  const rows = async (query: string, url = urlOf(layout)) => {
    const client = new pg.Client({ connectionString: url })
    client.on('error', () => {})
    await client.connect()
    return (await client.query(query).finally(() => client.end())).rows
  }
  beforeAll(async () => {
    for (const statement of [...tableSql(tables), ...storageSql(tables)]) await rows(statement)
    if (layout === 'plain') return
    const [first, second] = [`'${name}.rate_limit_ephemeral'`, `'${name}.rate_limit_durable'`]
    if (layout === 'one shard') {
      for (const table of [first, second]) await rows(`select create_distributed_table(${table}, null)`)
    } else {
      await rows(
        `select create_distributed_table(${first}, 'key', shard_count => ${layout}, colocate_with => 'none')`,
      )
      await rows(`select create_distributed_table(${second}, 'key', colocate_with => ${first})`)
    }
  })
  afterAll(async () => {
    await Promise.all(pools.map((pool) => pool.end()))
    await rows(`drop schema ${name} cascade`)
  })
  return { tables, use: typeof layout === 'number' ? [citus()] : [], name, at, rows }
}
