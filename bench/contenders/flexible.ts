import { drizzle } from 'drizzle-orm/node-postgres'
import { integer, pgTable, timestamp, varchar } from 'drizzle-orm/pg-core'
import type pg from 'pg'
import {
  RateLimiterDrizzle,
  RateLimiterPostgres,
  RateLimiterRedis,
  RateLimiterRes,
  type RateLimiterStoreAbstract,
} from 'rate-limiter-flexible'
import { STORAGE_PARAMETERS } from '../../src/tables/ddl.ts'
import { type Contender, type Opened, PERIOD_SECONDS, PLENTY } from './contender.ts'

/** The store without changes. It makes its own table, which is logged. */
export const flexiblePostgres: Contender = {
  name: 'rate-limiter-flexible, Postgres',
  open: async ({ pool }, points = PLENTY) => opened(await postgresStore(pool, 'flexible_logged', points)),
}

/**
 * The same store on a table like this package's. It shows which part of the difference comes from the table.
 */
export const flexibleUnlogged: Contender = {
  name: 'rate-limiter-flexible, Postgres, unlogged',
  async open({ pool }, points = PLENTY) {
    const table = 'flexible_unlogged'
    const parameters = Object.entries(STORAGE_PARAMETERS).map(([name, value]) => `${name} = ${value}`)
    await pool.query(
      `create unlogged table if not exists ${table} (key varchar(255) primary key, points integer not null default 0, expire bigint)
         with (${parameters.join(', ')})`,
    )
    return opened(await postgresStore(pool, table, points))
  },
}

/** It makes the table if there is none. */
export function postgresStore(
  pool: pg.Pool,
  tableName: string,
  points: number,
  options: { inMemoryBlockOnConsumed?: number } = {},
): Promise<RateLimiterPostgres> {
  return new Promise((resolve, reject) => {
    const config = { storeClient: pool, tableName, points, duration: PERIOD_SECONDS, ...options }
    const limiter = new RateLimiterPostgres({ ...config, clearExpiredByTimeout: false }, (error) =>
      error ? reject(error) : resolve(limiter),
    )
  })
}

const flexible = pgTable('flexible_drizzle', {
  key: varchar('key', { length: 255 }).primaryKey(),
  points: integer('points').notNull(),
  expire: timestamp('expire', { withTimezone: true }),
})

export const flexibleDrizzle: Contender = {
  name: 'rate-limiter-flexible, Drizzle',
  async open({ pool }, points = PLENTY) {
    await pool.query(
      'create table if not exists flexible_drizzle (key varchar(255) primary key, points integer not null, expire timestamptz)',
    )
    const config = {
      storeClient: drizzle({ client: pool }),
      schema: flexible,
      points,
      duration: PERIOD_SECONDS,
    }
    return opened(new RateLimiterDrizzle({ ...config, clearExpiredByTimeout: false }))
  },
}

export const flexibleRedis: Contender = {
  name: 'rate-limiter-flexible, Redis',
  store: 'elsewhere',
  async open({ redis, database: keyPrefix }, points = PLENTY) {
    if (!redis) throw new Error('REDIS_URL is not set.')
    const limiter = new RateLimiterRedis({ storeClient: redis, points, duration: PERIOD_SECONDS, keyPrefix })
    return {
      ...opened(limiter),
      async close() {
        for await (const keys of redis.scanStream({ match: `${keyPrefix}:*`, count: 1000 })) {
          if (keys.length > 0) await redis.unlink(keys)
        }
      },
    }
  },
}

function opened(limiter: RateLimiterStoreAbstract): Opened {
  return {
    check: (key) => isAdmitted(limiter.consume(key)),
    taken: async (key) => (await limiter.get(key))?.consumedPoints ?? 0,
    close: async () => {},
  }
}

/** It rejects with the answer if it denies. */
export async function isAdmitted(answer: Promise<RateLimiterRes>): Promise<boolean> {
  try {
    await answer
    return true
  } catch (denial) {
    if (denial instanceof RateLimiterRes) return false
    throw denial
  }
}
