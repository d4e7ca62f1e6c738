import { sql } from 'drizzle-orm'
import type { Database } from '../database/database.ts'
import { execute } from '../database/run.ts'
import { mustHave } from '../runtime/ask.ts'
import { CLOCK_MS } from '../statements/levels.ts'

/** The time of the database, in Unix milliseconds. */
export async function databaseClock(db: Database): Promise<number> {
  const [row] = await execute(db, sql`select ${CLOCK_MS} as now`)
  return Number(mustHave(row?.['now']))
}
