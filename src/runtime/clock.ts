import type { Database } from '../database/database.ts'
import { uncharged } from '../database/database-error.ts'
import { mustHave, onlyRow } from '../database/rows.ts'
import { execute } from '../database/run.ts'
import { CLOCK } from '../statements/levels.ts'

/** The time of the database, in Unix milliseconds. */
export async function databaseTime(db: Database): Promise<number> {
  return Number(mustHave(onlyRow(await uncharged(execute(db, CLOCK)))?.['now']))
}
