import type { Database } from '../database/database.ts'
import { mustHave, onlyRow } from '../database/rows.ts'
import { execute } from '../database/run.ts'
import { CLOCK } from '../statements/levels.ts'
import { readClock } from '../validate.ts'

/** The time of the injected clock or of the database, in Unix milliseconds. */
export async function timeOf(db: Database, clock: (() => Date) | undefined): Promise<number> {
  if (clock) return readClock(clock)
  return Number(mustHave(onlyRow(await execute(db, CLOCK))?.['now']))
}
