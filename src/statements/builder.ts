import { drizzle } from 'drizzle-orm/pg-proxy'

/**
 * Drizzle's query builder without a database: statements are written and rendered here, and run elsewhere.
 *
 * The names of their CTEs begin with `ratelimit_`: one that is a table's name would hide the table.
 */
export const builder: ReturnType<typeof drizzle> = drizzle(() =>
  Promise.reject(new Error('The statement builder has no database.')),
)
