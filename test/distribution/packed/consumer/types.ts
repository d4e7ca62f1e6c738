// An application, compiled against the packed declarations.

import { PGlite } from '@electric-sql/pglite'
import { eq, sql } from 'drizzle-orm'
import { pgSchema } from 'drizzle-orm/pg-core'
import { drizzle } from 'drizzle-orm/pglite'
import {
  checkTables,
  type Database,
  type LimitResult,
  Ratelimit,
  RatelimitError,
  storageSql,
  tableSql,
} from 'drizzle-ratelimit'
import * as betterAuth from 'drizzle-ratelimit/better-auth'
import { calendarWindow } from 'drizzle-ratelimit/calendar'
import { Credits } from 'drizzle-ratelimit/credits'
import * as express from 'drizzle-ratelimit/express'
import * as fastify from 'drizzle-ratelimit/fastify'
import * as hono from 'drizzle-ratelimit/hono'
import * as http from 'drizzle-ratelimit/http'
import { fromKysely } from 'drizzle-ratelimit/kysely'
import * as next from 'drizzle-ratelimit/next'
import * as otel from 'drizzle-ratelimit/otel'
import { rateLimitDurable, rateLimitTables } from 'drizzle-ratelimit/schema'
import { type Holder, Semaphore } from 'drizzle-ratelimit/semaphore'
import * as trpc from 'drizzle-ratelimit/trpc'

export async function use(): Promise<LimitResult> {
  const db = drizzle({ client: new PGlite(), schema: { rateLimitDurable } })
  const database: Database = db
  const tables = rateLimitTables({ schema: pgSchema('limits') })
  const limiter = calendarWindow(5, 'month')
  const ratelimit = new Ratelimit({ db: database, limiter, prefix: 'p', durable: true, tables })
  // @ts-expect-error the declarations are found, so a mistake is too
  await ratelimit.limit('key', { cost: 1 })
  const rows = await db.select().from(rateLimitDurable).where(eq(rateLimitDurable.key, sql`'k'`))
  const count: number | null | undefined = rows[0]?.count
  await db.query.rateLimitDurable.findFirst()
  await checkTables(db, tables)
  try {
    return await db.transaction((tx) => ratelimit.limit('key', { tx, rate: count ?? 1 }))
  } catch (error) {
    if (error instanceof RatelimitError) console.log(error.code, storageSql(), tableSql(), fromKysely)
    throw error
  }
}

export async function prepaid(db: Database): Promise<string | undefined> {
  const credits = new Credits({ db, prefix: 'credits', dated: true })
  await credits.grant('key', 5, { id: 'payment' })
  // @ts-expect-error each grant has an id
  await credits.grant('key', 5)
  return (await credits.grants('key'))[0]?.id
}

export async function work(db: Database): Promise<readonly Holder[]> {
  const exports = new Semaphore({ db, prefix: 'exports', limit: 5, lease: '30s' })
  const job = await exports.acquire('key')
  if (job.success) await job.release()
  return exports.holders('key')
}

/** The same limit wherever a request may come from. */
export function adapters(db: Database, ratelimit: Ratelimit): readonly unknown[] {
  const key = () => http.clientKey({ headers: {} }, { address: '192.0.2.1' })
  const store = { db, prefix: 'store' }
  return [
    express.rateLimit({ ratelimit, key }),
    fastify.rateLimitStore(store),
    hono.rateLimit({ ratelimit, key }),
    next.rateLimit({ ratelimit, key }),
    next.limitedAction({ ratelimit, key, onDenied: () => 'denied' }, async () => 'done'),
    trpc.rateLimit({ ratelimit, key }),
    betterAuth.rateLimitStorage(store),
    otel.instrument(),
  ]
}
