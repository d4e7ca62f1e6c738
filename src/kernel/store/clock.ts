import { sql } from 'drizzle-orm'
import type { Database } from '../database/database.ts'
import { uncharged } from '../database/database-error.ts'
import { onlyRow } from '../database/rows.ts'
import { execute } from '../database/run.ts'
import { exact } from '../sql/columns.ts'
import { CLOCK_MS } from '../sql/levels.ts'
import { exactNumber } from './number-columns.ts'

/** The time of the injected clock or of the database, in Unix milliseconds. */
export async function timeOf(db: Database, clock: (() => number) | undefined): Promise<number> {
  if (clock) return clock()
  return exactNumber(onlyRow(await uncharged(execute(db, sql`select ${exact(CLOCK_MS)} as now`)))?.['now'])
}
