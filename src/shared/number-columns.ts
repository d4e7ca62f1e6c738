import { sql } from 'drizzle-orm'
import type { Database } from '../kernel/database/database.ts'
import { uncharged } from '../kernel/database/database-error.ts'
import { exactNumbers, mustHave, onlyRow } from '../kernel/database/rows.ts'
import { execute, type Row } from '../kernel/database/run.ts'
import type { Numbers, StateColumn, StoredLimiter } from '../kernel/limits/algorithm.ts'
import { exact, SQL_NAMES } from '../kernel/sql/columns.ts'
import { CLOCK_MS } from '../kernel/sql/levels.ts'

// Reads answers that have a column for each of their numbers.

/**
 * A number that the answer has as {@link exactNumbers} have them. 0 for null.
 *
 * @throws RatelimitError `DATABASE` if it is something else.
 */
export function exactNumber(value: unknown): number {
  return mustHave(value) === null ? 0 : mustHave(exactNumbers(value)[0])
}

/** The state in a row of an answer that has a column for each of its numbers. */
export function stateIn(row: Row, { algorithm }: StoredLimiter): Numbers<StateColumn> {
  const state: Record<string, number> = {}
  for (const column of algorithm.columns) state[column] = exactNumber(columnIn(row, column))
  // An algorithm reads only its own columns.
  return state as Numbers<StateColumn>
}

/**
 * A state column in a row of an answer. postgres.js' `transform: postgres.camel` and Kysely's CamelCasePlugin
 * rename the columns of every answer. Other columns have names of one word, which both leave as they are.
 */
export function columnIn(row: Row, column: StateColumn): unknown {
  const name = SQL_NAMES[column]
  return mustHave(name in row ? row[name] : row[column])
}

/** The time of the injected clock or of the database, in Unix milliseconds. */
export async function timeOf(db: Database, clock: (() => number) | undefined): Promise<number> {
  if (clock) return clock()
  return exactNumber(onlyRow(await uncharged(execute(db, sql`select ${exact(CLOCK_MS)} as now`)))?.['now'])
}
