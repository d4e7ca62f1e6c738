import { sql } from 'drizzle-orm'
import type { Db } from './databases.ts'

/**
 * The names of this package's statements on the connection of a pool of one: of those that the driver has
 * prepared.
 */
export async function namesOn(db: Db): Promise<string[]> {
  const result: unknown = await db.execute(
    sql`select '<' || name || '>' as name from pg_prepared_statements
      where not from_sql and statement ~ '^/[*] size'`,
  )
  return (JSON.stringify(result).match(/<[^>]+>/g) ?? []).map((name) => name.slice(1, -1)).sort()
}
