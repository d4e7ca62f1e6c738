import type { Database } from '../database/database.ts'
import { execute } from '../database/run.ts'
import { mustHave } from '../runtime/ask.ts'
import { CLOCK } from '../statements/levels.ts'
import { readClock } from '../validate.ts'

/** The time of the injected clock, or of the database, in Unix milliseconds. */
export async function timeOf(db: Database, clock: (() => Date) | undefined): Promise<number> {
  if (clock) return readClock(clock)
  const [row] = await execute(db, CLOCK)
  return Number(mustHave(row?.['now']))
}
