import type { Database } from '../database/database.ts'
import { readClock } from '../options/validate.ts'
import { databaseTime } from '../runtime/clock.ts'

/** The time of the injected clock or of the database, in Unix milliseconds. */
export async function timeOf(db: Database, clock: (() => Date) | undefined): Promise<number> {
  return clock ? readClock(clock) : databaseTime(db)
}
