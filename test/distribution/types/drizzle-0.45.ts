import type { BunSQLDatabase } from 'drizzle-orm/bun-sql'
import { drizzle } from 'drizzle-orm/node-postgres'
import { pgTable, text } from 'drizzle-orm/pg-core'
import { relations } from 'drizzle-orm/relations'
import { Ratelimit } from 'drizzle-ratelimit'

// A database that knows a schema and its relations, as Drizzle 0.45 has them.
const users = pgTable('users', { id: text('id').primaryKey(), friend: text('friend') })
const usersRelations = relations(users, ({ one }) => ({
  friend: one(users, { fields: [users.friend], references: [users.id] }),
}))
const db = drizzle('postgres://localhost/app', { schema: { users, usersRelations } })
const ratelimit = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(5, '1m'), prefix: 'p' })
await db.transaction((tx) => ratelimit.limit('key', { tx }))

declare const bun: BunSQLDatabase
new Ratelimit({ db: bun, limiter: Ratelimit.fixedWindow(5, '1m'), prefix: 'p' })
await bun.transaction((tx) => ratelimit.limit('key', { tx }))
