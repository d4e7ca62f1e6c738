import { PGlite } from '@electric-sql/pglite'
import { drizzle as drizzleNodePostgres } from 'drizzle-orm/node-postgres'
import { drizzle as drizzlePglite } from 'drizzle-orm/pglite'
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js'
import { type Database, Ratelimit } from '../../src/index.ts'
import { Quota } from '../../src/quota/index.ts'
import { migrations } from '../server/database.ts'
import { type Contender, type Opened, PLENTY } from './contender.ts'

/** The others are compared with this one. */
export const THIS_PACKAGE = 'drizzle-ratelimit, node-postgres'
export const ON_POSTGRES_JS = 'drizzle-ratelimit, postgres.js'

/** This package without any option. */
export function defaultLimiter(db: Database, prefix: string, limit: number = PLENTY): Ratelimit {
  return new Ratelimit({ db, limiter: Ratelimit.tokenBucket(limit, '1h', limit), prefix })
}

/** The same limit of a quota, in the same table. */
export function defaultQuota(db: Database, prefix: string, limit: number = PLENTY): Quota {
  return new Quota({ db, limiter: Ratelimit.tokenBucket(limit, '1h', limit), prefix, durable: false })
}

export const onNodePostgres: Contender = {
  name: THIS_PACKAGE,
  open: async ({ pool }, limit) =>
    openedBy(defaultLimiter(drizzleNodePostgres({ client: pool }), 'node-postgres', limit)),
}

export const onPostgresJs: Contender = {
  name: ON_POSTGRES_JS,
  open: async ({ postgresJs }, limit) =>
    openedBy(defaultLimiter(drizzlePostgresJs({ client: postgresJs }), 'postgres.js', limit)),
}

/** Contenders inside this process, which share no server. */
export const onPglite: Contender = {
  name: 'drizzle-ratelimit, PGlite',
  store: 'elsewhere',
  async open(_connections, limit) {
    const client = await PGlite.create()
    await client.exec(await migrations())
    const limiter = defaultLimiter(drizzlePglite({ client }), 'pglite', limit)
    return { ...openedBy(limiter), close: () => client.close() }
  },
}

export function openedBy(ratelimit: Ratelimit): Opened {
  return {
    check: async (key) => (await ratelimit.limit(key)).success,
    async taken(key) {
      const { limit, remaining } = await ratelimit.getRemaining(key)
      return limit - remaining
    },
    close: async () => {},
  }
}
