import { defineRelations } from 'drizzle-orm'
import type { BunSQLDatabase } from 'drizzle-orm/bun-sql/postgres'
import { drizzle } from 'drizzle-orm/node-postgres'
import { pgTable, text } from 'drizzle-orm/pg-core'
import { Ratelimit } from 'drizzle-ratelimit'

// A database that knows a schema and its relations, as Drizzle 1.0 has them.
const users = pgTable('users', { id: text('id').primaryKey(), friend: text('friend') })
const relations = defineRelations({ users }, (r) => ({
  users: { friend: r.one.users({ from: r.users.friend, to: r.users.id }) },
}))
const db = drizzle('postgres://localhost/app', { relations })
const ratelimit = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(5, '1m'), prefix: 'p' })
await db.transaction((tx) => ratelimit.limit('key', { tx }))

declare const bun: BunSQLDatabase
new Ratelimit({ db: bun, limiter: Ratelimit.fixedWindow(5, '1m'), prefix: 'p' })
await bun.transaction((tx) => ratelimit.limit('key', { tx }))
