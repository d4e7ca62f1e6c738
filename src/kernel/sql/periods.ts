import { and, isNotNull, or, type SQL, sql } from 'drizzle-orm'
import type { RowKind } from '../limits/algorithm.ts'
import { ROWS } from '../limits/rows.ts'
import { isOfKind, type RowColumns, STATE_COLUMNS } from './columns.ts'

const PERIOD_ROWS: readonly RowKind[] = Object.values(ROWS).filter(({ hasPeriods }) => hasPeriods)

/** Whether the row belongs to an algorithm with periods. */
export function isOfPeriods(row: RowColumns): SQL {
  return sql`${or(...PERIOD_ROWS.map((kind) => isOfKind(kind, row)))}`
}

/**
 * Whether the row fills the columns that all algorithms with periods fill. Without statistics the planner takes
 * {@link isOfPeriods} for rare, and would read all rows of a prefix for each page of them. It takes this for
 * likely, and reads a page in the order of the keys.
 */
export function mayHavePeriod(row: RowColumns): SQL {
  const common = STATE_COLUMNS.filter((each) => PERIOD_ROWS.every(({ columns }) => columns.includes(each)))
  return sql`${and(...common.map((column) => isNotNull(row[column])))}`
}
