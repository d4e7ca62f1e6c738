import { drizzle } from 'drizzle-orm/node-postgres'
import { type PgSchema, pgSchema, pgTable, text } from 'drizzle-orm/pg-core'
import { Ratelimit } from 'drizzle-ratelimit'
import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'

// What the examples in the documents take for granted.
type JobsTable = ReturnType<typeof pgTable<'jobs', { name: ReturnType<ReturnType<typeof text>['notNull']> }>>

export const db: ReturnType<typeof drizzle> = drizzle('postgres://localhost/app')
export const kysely: Kysely<object> = new Kysely<object>({
  dialect: new PostgresDialect({ pool: new pg.Pool() }),
})
export const org = { id: 'org:1' }
export const job = { name: 'import' }
export const jobs: JobsTable = pgTable('jobs', { name: text('name').notNull() })
export const limits: PgSchema = pgSchema('limits')
export const api: Ratelimit = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(5, '1m'), prefix: 'api' })
export class QuotaExceeded extends Error {
  readonly retryAfter: number

  constructor(retryAfter: number) {
    super('quota exceeded')
    this.retryAfter = retryAfter
  }
}
