import { type SQL, sql } from 'drizzle-orm'
import { name } from './builder.ts'
import { exact } from './columns.ts'

/** Columns with a number each, as they are sent to the client. */
export function answered(columns: readonly string[], of?: string): SQL[] {
  return columns.map((column) => sql`${exact(name(column, of))} as ${name(column)}`)
}
