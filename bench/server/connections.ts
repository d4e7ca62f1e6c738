import { Redis } from 'ioredis'
import pg from 'pg'
import postgres from 'postgres'

/** The same for everyone. */
const MOST_CONNECTIONS = 16

/** What contenders speak to their stores through; whoever has the same driver shares its pool. */
export interface Connections {
  /** The database's name, which is new: a prefix for what is stored elsewhere. */
  readonly database: string
  readonly pool: pg.Pool
  readonly postgresJs: postgres.Sql
  /** Where `REDIS_URL` names a server. It needs no pool: it sends many commands over one connection at once. */
  readonly redis: Redis | undefined
  close(): Promise<void>
}

/** Nothing connects before it is used. */
export function connectTo(url: string): Connections {
  const pool = new pg.Pool({ connectionString: url, max: MOST_CONNECTIONS, idleTimeoutMillis: 0 })
  // A connection that breaks while idle; its next query says so.
  pool.on('error', () => {})
  const postgresJs = postgres(url, { max: MOST_CONNECTIONS, onnotice: () => {} })
  const redisUrl = process.env['REDIS_URL']
  const redis = redisUrl ? new Redis(redisUrl, { lazyConnect: true }) : undefined
  return {
    database: new URL(url).pathname.slice(1),
    pool,
    postgresJs,
    redis,
    close: async () => {
      await Promise.all([pool.end(), postgresJs.end({ timeout: 5 })])
      redis?.disconnect()
    },
  }
}
