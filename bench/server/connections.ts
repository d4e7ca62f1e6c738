import { Redis } from 'ioredis'
import pg from 'pg'
import postgres from 'postgres'

/** All contenders have pools of this size. */
const MAX_CONNECTIONS = 16

/** The connections of contenders to their stores. Contenders with the same driver share its pool. */
export interface Connections {
  /** The name of the new database. Other stores use it as a prefix. */
  readonly database: string
  readonly pool: pg.Pool
  readonly postgresJs: postgres.Sql
  /**
   * Present if `REDIS_URL` names a server. It needs no pool, because one connection carries many commands at
   * once.
   */
  readonly redis: Redis | undefined
  close(): Promise<void>
}

/** A connection is made when it is first used. */
export function connectTo(url: string): Connections {
  const pool = new pg.Pool({ connectionString: url, max: MAX_CONNECTIONS, idleTimeoutMillis: 0 })
  // A connection broke while idle. Its next query reports that.
  pool.on('error', () => {})
  const postgresJs = postgres(url, { max: MAX_CONNECTIONS, onnotice: () => {} })
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
